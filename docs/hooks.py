"""What mkdocs does not do by itself: pages that live outside docs/, links to files that are no pages, the notebook."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
OUTSIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "experiments/**/README.md", "experiments/**/*.svg")
LINK = re.compile(r"(?<!!)\[([^]]*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the lab books of experiments/, the changelog and notebooks, which mkdocs does not look for."""
    for pattern in OUTSIDE:
        for path in sorted(ROOT.glob(pattern)):
            uri = path.relative_to(ROOT).as_posix()
            files.append(File(uri, str(ROOT), config.site_dir, config.use_directory_urls))
    for path in sorted(Path(config.docs_dir).rglob("*.ipynb")):
        uri = path.relative_to(config.docs_dir).with_suffix(".md").as_posix()
        files.append(File.generated(config, uri, content=notebook_page(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links lead to pages of the site, and colour examples as the sessions that they are."""
    folder = Path(page.file.abs_src_path or config.docs_dir).parent
    here = os.path.dirname(page.file.src_uri)

    def on_site(link: re.Match[str]) -> str:
        text, target, anchor = link.group(1), link.group(2), link.group(3) or ""
        path = Path(os.path.normpath(folder / target))
        if path.suffix == ".ipynb" and target != page.file.name + ".ipynb":  # its page, unless that offers the file
            path = path.with_suffix(".md")
        for root in (Path(config.docs_dir), ROOT):
            if path.is_relative_to(root) and files.get_file_from_path(path.relative_to(root).as_posix()):
                return f"[{text}]({os.path.relpath(path.relative_to(root).as_posix(), here or '.')}{anchor})"
        return text if path.exists() and not path.is_relative_to(config.docs_dir) else link.group(0)

    markdown = LINK.sub(on_site, markdown)
    markdown = re.sub(r" +# doctest: .*", "", markdown)
    return re.sub(r"^```python\n(?=>>> )", "```pycon\n", markdown, flags=re.MULTILINE)


def notebook_page(path: Path) -> str:
    """A notebook as Markdown: its texts, its code, and what the code printed."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    title, *parts = [part for cell in cells for part in _cell(cell)]
    download = f"[Download this notebook]({path.name}) and run it where stead is installed."
    return "\n\n".join([title, download, *parts]) + "\n"


def _cell(cell: dict[str, Any]) -> list[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [source]
    return [f"```python\n{source}\n```", *(_shown(output) for output in cell["outputs"])]


def _shown(output: dict[str, Any]) -> str:
    """One output: a table of HTML as it is, everything else as text."""
    data = output.get("data", {})
    if "text/html" in data:
        return "".join(data["text/html"])
    text = "".join(output.get("text", data.get("text/plain", ())))
    return f"```text\n{text.rstrip()}\n```"
