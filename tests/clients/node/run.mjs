// Run the function that the command line names, and print what it returns, or its error, as one line of JSON.
export async function run(functions) {
  const [, , name] = process.argv;
  try {
    console.log(JSON.stringify(await functions[name]()));
  } catch (error) {
    const status = error.status ?? error.statusCode ?? null;
    const { message, responseBody: body = null } = error;
    console.log(JSON.stringify({ error: error.constructor.name, status, message, body }));
  }
}
