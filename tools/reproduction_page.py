"""Bring tables up to date with the records of results/reproduction, there and in docs/reproduction.md.

On the page a table stands below a comment with its name: <!-- table-1-mlp -->
"""

import re
from pathlib import Path

from lzero.reproduce import past, records, tables
from lzero.reproduce.experiments import EXPERIMENTS

ROOT = Path(__file__).resolve().parent.parent
KEPT, PAGE = ROOT / "results" / "reproduction", ROOT / "docs" / "reproduction.md"
OLD_TABLE = re.compile(r"\A(\|.*\n)*")


def written(name: str, text: str) -> str:
    """The lines of a table, after its file was written anew."""
    (KEPT / f"{name}.md").write_text(text, encoding="utf-8")
    return "".join(f"{line}\n" for line in text.splitlines() if line.startswith("|"))


def main() -> None:
    """Write what changed; a table that the page has no place for is an error."""
    page = PAGE.read_text(encoding="utf-8")
    found = {name: records.read_all(KEPT, name) for name in EXPERIMENTS if (KEPT / f"{name}.jsonl").exists()}
    texts = {name: tables.markdown(EXPERIMENTS[name], each) for name, each in found.items()}
    texts["past-the-papers"] = past.markdown((EXPERIMENTS[name], each) for name, each in found.items())
    for name, text in texts.items():
        marker = f"<!-- {name} -->\n"
        if marker not in page:
            raise SystemExit(f"{PAGE}: expected a line {marker.strip()} where the table goes")
        before, after = page.split(marker)
        page = before + marker + written(name, text) + OLD_TABLE.sub("", after, count=1)
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
