/** What the server says: its type is in the description of the API. */
type Json = Record<string, any>;
