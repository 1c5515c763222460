"""README, findings and papers are their templates, filled from the committed CSV files and conf/."""

import json
import tarfile
import zlib
from itertools import accumulate
from pathlib import Path
from statistics import mean

import pytest
import yaml

from tests.helpers import pages, paper_settings


@pytest.mark.parametrize("template", pages.PAGES)
def test_the_committed_pages_are_the_filled_templates(template: str) -> None:
    page = pages.PAGES[template].read_text(encoding="utf-8")
    assert pages.filled(template) == page, "change docs/templates, then run `make pages`"
    assert "{{" not in page and "<!--" not in page, "the page is plain Markdown"


def test_each_report_of_a_paper_has_its_settings_listed() -> None:
    assert not paper_settings.without_rows()
    with pytest.raises(ValueError, match="which no one axis decides"):
        paper_settings.preset(["fsd_table2"], "pair.target")
    with pytest.raises(ValueError, match="no point has"):
        paper_settings.preset(["mars_table1"], "rule.theta at PLD")


def test_a_sentence_waits_for_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MEASURED", tmp_path)
    (tmp_path / "a.csv").write_text("Rule,state\ntarget in Q4_0,missing\nMARS,measured\n")
    assert pages.measured("a", "MARS") and not pages.measured("a", "target in Q4_0")


def test_what_findings_say_of_answers_of_smollm2() -> None:
    """Recomputed from the archived cells of MT-bench: τ in and after the first 64 tokens, and how
    far zlib packs."""
    cells: dict[str, dict[str, bytes]] = {}
    with tarfile.open(pages.MEASURED / "smollm2_cpu" / "store.tar.xz") as archive:
        for member in archive:
            if "-mt_bench-" in member.name and member.name.endswith(("cell.yaml", "samples.jsonl")):
                _, cell, file = member.name.split("/")
                cells.setdefault(cell, {})[file] = archive.extractfile(member).read()
    tau, packed = {}, {}
    for files in cells.values():
        config = yaml.safe_load(files["cell.yaml"])
        rule = config["rule"]
        of = (config["drafter"]["name"], rule["name"], rule.get("variant"), rule.get("q_mode"))
        samples = [json.loads(line) for line in files["samples.jsonl"].splitlines()]
        cycles = [
            (before < 64, tokens)
            for sample in samples
            for tokens, before in zip(
                sample["committed"], accumulate(sample["committed"], initial=0), strict=False
            )
        ]
        tau[of] = tuple(
            f"{mean(tokens for early, tokens in cycles if early is part):.2f}"
            for part in (True, False)
        )
        texts = [" ".join(sample["texts"]).encode() for sample in samples]
        packed[of] = round(100 * mean(len(zlib.compress(text)) / len(text) for text in texts))
    said = " ".join(Path("docs/findings.md").read_text(encoding="utf-8").split())
    released, exact = (
        ("eagle3", "mars", "released", "draft"),
        ("eagle3", "lossless", None, "exact"),
    )
    assert (
        "MARS as released commits {} tokens per cycle in the first 64 tokens and {} after them, "
        "EAGLE-3 {} and {}."
    ).format(*tau[released], *tau[exact]) in said
    assert (
        "speculative sampling with a draft model gains too, {} and {}".format(
            *tau["model", "lossless", None, "exact"]
        )
        in said
    )
    lossless = [packed[of] for of in packed if of[1] == "lossless" and of[3] == "exact"]
    shortcut = packed["eagle3", "lossless", None, "draft"]
    assert (
        f"MARS as released compress to {packed[released]}% of their size (zlib), of the shortcut to "
        f"{shortcut}%, those of Algorithm 1 to {packed['eagle3', 'mars', 'algorithm1', 'exact']}%, "
        f"those of the lossless methods to {min(lossless)} to {max(lossless)}%"
    ) in said
