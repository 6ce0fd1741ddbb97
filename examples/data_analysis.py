"""A model analyses a CSV with Python in the sandbox, and makes a plot, which a client fetches and shows.

It runs offline: a scripted model says what a real one might. Give a real one instead with `backend="http://…/v1"`.
With `--show` the plot is opened in a browser. It needs bubblewrap, and the `openai` package for the client.
"""

import sys
import tempfile
import webbrowser
from pathlib import Path

try:
    from openai import OpenAI
except ModuleNotFoundError:
    sys.exit(f"The client of this example is not installed: {sys.executable} -m pip install openai")

from antwort import Antwort
from antwort.config import Config, ProviderConfig
from antwort.testing import ScriptedBackend, call, running, turn

SALES = b"month,sold\nJan,90\nFeb,105\nMar,112\nApr,120\nMay,145\nJun,160\n"
LOOK = """
import csv
rows = [(row["month"], int(row["sold"])) for row in csv.DictReader(open("sales.csv"))]
best = max(rows, key=lambda row: row[1])
print(f"{len(rows)} months, {sum(sold for _, sold in rows)} sold; the best month was {best[0]}")
"""
PLOT = """
try:
    import matplotlib.pyplot as plt
    plt.bar(*zip(*rows))
    plt.savefig("sales.svg")
    plt.close()
except ImportError:  # then it is drawn by hand
    bars = "".join(
        f'<rect x="{10 + 40 * place}" y="{180 - sold}" width="30" height="{sold}" fill="steelblue"/>'
        f'<text x="{25 + 40 * place}" y="195" text-anchor="middle" font-size="12">{month}</text>'
        for place, (month, sold) in enumerate(rows)
    )
    with open("sales.svg", "w") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 250 200">{bars}</svg>')
"""


def model() -> ScriptedBackend:
    """Return a model that reads the file, draws a plot of it, and answers."""
    return ScriptedBackend(
        [
            turn(calls=[call("code_interpreter", code=LOOK)]),
            turn(calls=[call("code_interpreter", code=PLOT)]),
            turn("The best month was June, with 160; see [1]."),
        ]
    )


def analyse(client: OpenAI, folder: Path) -> Path:
    """Let the model analyse the sales; return where the plot is."""
    container = client.containers.create(name="sales").id
    client.containers.files.create(container, file=("sales.csv", SALES))
    response = client.responses.create(
        model="scripted",
        input="Which month was the best? Make a plot.",
        tools=[{"type": "code_interpreter", "container": container}],
        include=["code_interpreter_call.outputs"],
    )
    print("model:", response.output_text)
    plot = folder / "plot"
    for item in response.output:
        if item.type == "code_interpreter_call":
            for output in item.outputs or []:
                if output.type == "logs":
                    print("logs: ", output.logs.strip())
        elif item.type == "message" and item.content[0].type == "output_text":
            for cited in item.content[0].annotations:
                if cited.type == "container_file_citation":
                    content = client.containers.files.content.retrieve(cited.file_id, container_id=cited.container_id)
                    plot = folder / cited.filename
                    plot.write_bytes(content.read())
    return plot


def main() -> None:
    """Serve an app, and be its client."""
    with tempfile.TemporaryDirectory() as data, model() as scripted:
        config = Config(data_dir=Path(data), providers={"code_interpreter": ProviderConfig(enabled=True)})
        with (
            running(Antwort(config, backend=scripted)) as server,
            OpenAI(base_url=f"{server.url}/v1", api_key="none") as client,
        ):
            plot = analyse(client, Path(tempfile.mkdtemp()) if "--show" in sys.argv else Path(data))
            print(f"file:  {plot.name}, {len(plot.read_bytes())} bytes of image/svg+xml")
    if "--show" in sys.argv:
        webbrowser.open(plot.as_uri())


if __name__ == "__main__":
    main()
