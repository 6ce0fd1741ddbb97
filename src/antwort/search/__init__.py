"""What searches, as whoever writes one sees it: vector databases, embeddings, re-rankers, search engines."""
