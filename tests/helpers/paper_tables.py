"""Read the tables of the four papers from their plain text: the numbers as they are printed, cell by cell.

Every reader gives {(pair, row, column, value_name): text}, with the keys of results/published/*.csv."""

import re
from collections.abc import Iterator
from pathlib import Path

Printed = dict[tuple[str, str, str, str], str]

MARS_PAIRS = ("V 13B", "L31 8B", "L33 70B", "Q3 8B", "Q3 32B", "Q3 235B")
MARS_TASKS = ("MT-bench", "HumanEval", "GSM8K", "Alpaca", "CNN/DM", "Mean")
FSD_PAIRS = ("Llama3.1 8B + 70B", "Gemma2 2B + 27B", "Qwen2.5 7B + 32B")
FSD_TASKS = ("GSM8K", "CSQA", "MMLU", "HumanEval")
DM_70B = "Llama-3.1-70B-Instruct"
DM_PAIRS = ("Llama-3.1 8B/70B-Instruct", "Qwen3 4B/32B")
DM_EAGLE = "Llama-3.3 70B-Instruct"
DM_JUDGE = "Llama-3.1-8B/70B-Instruct"
ARC_TASKS = ("MT-bench", "HumanEval", "GSM8K", "Alpaca")
ARC_ROWS = {"Eagle": "EAGLE", "Eagle3": "EAGLE-3", "ARC (ours)": "ARC", "ARC (Ours)": "ARC",
            "Ours (entropy-guided)": "Entropy-guided", "Depth (best α )": "Depth"}


def paper_tables(folder: Path) -> dict[str, Printed]:
    """Name of the file in results/published -> the numbers of that table."""
    mars, fsd, dropmatch, arc = (
        (folder / f"{name}.txt").read_text(encoding="utf-8") for name in ("mars", "fsd", "dropmatch", "arc_decode"))
    return {
        "mars_table1": mars_table1(mars), "mars_table2": mars_table2(mars),
        "fsd_table1": fsd_table1(fsd), "fsd_table2": fsd_table2(fsd), "fsd_table3": fsd_table3(fsd),
        **dropmatch_tables(dropmatch), **arc_tables(arc),
    }


def numbers(text: str) -> list[str]:
    """The numbers of a line, without their signs of unit; a dash or backslash in place of a number is left out."""
    return re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?=\D|$)", text.replace("×", " ").replace("\\times", " "))


def between(text: str, start: str, end: str) -> list[str]:
    """The lines from the one that begins with `start` to before the next one that begins with `end`."""
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(start))
    last = next(i for i, line in enumerate(lines[first:], first) if i > first and line.startswith(end))
    return lines[first:last]


def mars_table1(text: str) -> Printed:
    found: Printed = {}
    pair = ""
    for line in between(text, "V 13B SpS", "Table 1:"):
        if start := next((name for name in MARS_PAIRS if line.startswith(name)), None):
            pair, line = start, line.removeprefix(start).strip()
        method, _, rest = line.partition(" ")
        values = numbers(rest)
        assert len(values) == 12, line
        for i, task in enumerate(MARS_TASKS):
            found[pair, method, task, "speedup"], found[pair, method, task, "tau"] = values[2 * i:2 * i + 2]
    return found


def mars_table2(text: str) -> Printed:
    found: Printed = {}
    task = ""
    for line in between(text, "GSM8K baseline", "Table 2:"):
        for name, label in (("GSM8K", "GSM8K"), ("Humaneval", "HumanEval")):
            if line.startswith(name):
                task, line = label, line.removeprefix(name).strip()
        depth, _, rest = line.partition(" ")
        names = ("speedup", "accuracy") if depth == "baseline" else ("speedup", "tau", "accuracy")
        values = iter(numbers(rest.replace("x", "")))
        for temperature in ("0.2", "0.4", "0.6", "0.8", "1"):
            found |= {("Qwen3-32B", f"{task} / {depth}", temperature, name): next(values) for name in names}
        assert next(values, None) is None, line
    return found


def fsd_table1(text: str) -> Printed:
    found: Printed = {}
    task = ""
    for line in between(text, "CSQA Tk.", "Table 1:"):
        name = "draft_share" if "% M_D" in line else "tokens_per_s"
        task = line.split()[0] if name == "tokens_per_s" else task
        values = numbers(line.split("Tk.", 1)[1])
        found |= {(FSD_PAIRS[0], task, length, name): value
                  for length, value in zip(("5", "10", "15"), values, strict=True)}
    return found


def fsd_table2(text: str) -> Printed:
    found: Printed = {}
    pair = ""
    for line in between(text, "GSM8K CSQA MMLU", "Table 2:"):
        pair = line if line in FSD_PAIRS else pair
        match = re.match(r"(M_D|M_T|SD|FSD \(\w+\.?\)) (.*)", line)
        if not match:
            continue
        method, values = match[1], match[2].split()
        assert len(values) == 12, line
        for i, task in enumerate(FSD_TASKS):
            names = ("accuracy", "tokens_per_s", "accept_len")
            found |= {(pair, method, task, name): value
                      for name, value in zip(names, values[3 * i:3 * i + 3], strict=True) if value != "-"}
    return found


def fsd_table3(text: str) -> Printed:
    found: Printed = {}
    for line in between(text, "GSM8K 95.1 94.7", "Table 3:"):
        task, *values = line.split()
        for i, pair in enumerate((FSD_PAIRS[2], FSD_PAIRS[0], FSD_PAIRS[1])):  # the paper's order here
            exact, relaxed, gain = values[3 * i:3 * i + 3]
            found |= {(pair, "SD", task, "accuracy"): exact, (pair, "FSD", task, "accuracy"): relaxed,
                      (pair, "FSD", task, "speed_gain"): gain}
    return found


def dropmatch_tables(text: str) -> dict[str, Printed]:
    heads = dict(zip(("Head1", "Head2", "Head3", "Head4", "Head5"), range(5), strict=True))
    caption = re.search(r"Baseline Pass@1 of ([\d.]+) without dropout; .* with Pass@1 of ([\d.]+)\.", text)
    assert caption
    one: Printed = {(DM_70B, "HumanEval / without dropout", "Head1", "accuracy"): caption[1],
                    (DM_70B, "HumanEval / draft alone", "Head1", "accuracy"): caption[2]}
    for match in re.finditer(r"^Pass@1 \(\$p=([\d.]+)\$\)\t(.*)$", text, re.M):
        values = match[2].split("\t")
        one |= {(DM_70B, f"HumanEval / {match[1]}", head, "accuracy"): values[i] for head, i in heads.items()}
    two: Printed = {}
    for start, name in (("Ratio\t", "majority"), ("Mean prob.\t", "majority_p")):
        (line,) = (line for line in text.splitlines() if line.startswith(start))
        two |= {(DM_70B, "HumanEval", "DropMatch", f"{name}_{i}"): value.rstrip("%")
                for i, value in enumerate(line.split("\t")[1:], 1)}
    three: Printed = {}
    for case in ("Dispersed", "Concentrated"):
        (line,) = (line for line in text.splitlines() if line.startswith(f"{case}\t"))
        three |= {(DM_70B, "HumanEval", "DropMatch", f"js_{case.lower()}_{whose}"): value
                  for whose, value in zip(("draft", "heads"), line.split("\t")[1:], strict=True)}
    four: Printed = {}
    for start, label in (("w/o dropout", "w/o dropout"), ("$K = 5$ (Naive)", "K = 5 (Naive)"),
                         ("$K = 5$ (JS)", "K = 5 (JS)")):
        (line,) = (line for line in text.splitlines() if line.startswith(f"{start}\t"))
        four |= {(DM_70B, label, "latency", name): value
                 for name, value in zip(("forward_ms", "head_ms", "head_share"), line.split("\t")[1:], strict=True)}
    (line,) = (line for line in text.splitlines() if line.startswith("SD + DM\t1.19x"))
    five = {(DM_70B, "SD + DM", size, "speedup_over_sd"): value.rstrip("x")
            for size, value in zip(("1", "4", "16", "32", "64", "128"), line.split("\t")[1:], strict=True)}
    ten = {("Llama-3.3-70B-Instruct", row, "KoMT-Bench", name): value
           for line in between(text, "Standard\t8.08", "Table 10 presents") if line
           for row, *values in [line.split("\t")] for name, value in zip(("judge_score", "tau"), values, strict=True)}
    tables = {1: one, 2: two, 3: three, 4: four, 5: five, 6: dropmatch_table6(text), 7: dropmatch_table7(text),
              8: dropmatch_table8(text), 9: dropmatch_table9(text), 10: ten}
    return {f"dropmatch_table{i}": table for i, table in tables.items()}


def dropmatch_table6(text: str) -> Printed:
    found: Printed = {}
    lines = [line.split("\t") for line in text.splitlines() if re.search(r"\tSD( \+ DM)?\t(5|10)\t", line)]
    for i, (_, method, length, *values) in enumerate(lines):
        for t, task in enumerate(("GSM8K", "MMLU", "IFEval", "HumanEval")):
            names = ("speedup_over_sd", "tau", "accuracy")
            found |= {(DM_PAIRS[i // 4], f"{length} / {method}", task, name): value.rstrip("x")
                      for name, value in zip(names, values[3 * t:3 * t + 3], strict=True)}
    return found


def dropmatch_table7(text: str) -> Printed:
    found: Printed = {}
    method = ""
    for line in between(text, "Llama-3.3 70B-Instruct\tEAGLE3", "Table 8."):
        if not (match := re.search(r"\t(EAGLE3|EAGLE3 \+DM|)\t([579])\t(.*)$", line)):
            continue
        method = match[1].replace("+DM", "+ DM") or method
        values = match[3].split("\t")
        for t, (task, quality) in enumerate((("GSM8K", "accuracy"), ("MT-bench", "judge_score"),
                                             ("Alpaca", "win_rate"))):
            found |= {(DM_EAGLE, f"{method} / {match[2]}", task, name): value.rstrip("x")
                      for name, value in zip(("speedup", "tau", quality), values[3 * t:3 * t + 3], strict=True)}
    return found


def dropmatch_table8(text: str) -> Printed:
    speeds = re.search(r"achieves ([\d.]+) and ([\d.]+) tokens/s with \$L = 8\$ and \$L = 32\$", text)
    assert speeds
    found: Printed = {(DM_JUDGE, "GSM8K / SD (L = 8)", "none", "tokens_per_s"): speeds[1],
                      (DM_JUDGE, "GSM8K / SD (L = 32)", "none", "tokens_per_s"): speeds[2]}
    labels = {"Accuracy, %": "accuracy", "tokens / s": "tokens_per_s", "Auto-Judge=1x": "speedup_over_autojudge",
              "SD($L=8$)=1x": "speedup_over_sd_8", "SD($L=32$)=1x": "speedup_over_sd_32"}
    method = ""
    for line in between(text, "Auto-Judge\tAccuracy", "candidate tokens are"):
        if "\t" not in line:
            continue
        name, label, *values = line.split("\t")
        method = name.replace("Speedup(DM)", "Auto-Judge + DM") or method
        found |= {(DM_JUDGE, f"GSM8K / {method}", threshold, labels[label]): value.rstrip("x")
                  for threshold, value in zip(("0.014", "0.022", "0.112", "0.281"), values, strict=True)}
    return found


def dropmatch_table9(text: str) -> Printed:
    found: Printed = {}
    for line in between(text, "0.0004\t", "are preserved."):
        if "\t" not in line:
            continue
        threshold, *values = line.split("\t")
        places = [(method, name) for method in ("Auto-Judge", "Auto-Judge + DM") for name in ("tau", "accuracy")]
        found |= {(DM_70B, f"LiveCodeBench / {method}", threshold, name): value
                  for (method, name), value in zip(places, values, strict=True)}
    return found


def arc_tables(text: str) -> dict[str, Printed]:
    tables = {number: list(arc_rows(text, number)) for number in range(1, 9)}
    eight = "Llama-3.1-8B"
    phases = ("prefill_share", "draft_time_share", "verify_share", "accept_share")
    one = {(eight, "EAGLE-3", "MT-Bench", name): row[1] for name, row in zip(phases, tables[1], strict=True)}
    two = {(row[0], row[1], task, name): row[2 + 3 * t + i] for row in tables[2] for t, task in enumerate(ARC_TASKS)
           for i, name in enumerate(("tokens_per_s", "tau", "speedup"))}
    qualities = ("judge_score", "accuracy", "accuracy", "win_rate")
    three = {(row[0], row[1], task, name): value
             for row in tables[3] for task, name, value in zip(ARC_TASKS, qualities, row[2:], strict=True)}
    upper = ("MT-Bench", *ARC_TASKS[1:])
    four = {(eight, row[0], task, name): row[1 + 3 * t + i] for row in tables[4] for t, task in enumerate(upper)
            for i, name in enumerate(("tau", "speedup", "pruned_share")) if row[1 + 3 * t + i] != "N/A"}
    five: Printed = {}
    for task, coverage, ends in tables[5]:
        low, high = numbers(ends)
        five |= {(eight, task, "ARC", "coverage"): coverage, (eight, task, "ARC", "coverage_low"): low,
                 (eight, task, "ARC", "coverage_high"): high}
    six: Printed = {}
    pair = ""
    for model, method, *values in tables[6]:
        pair = model or pair
        places = [(task, name) for task in ("MT-Bench", "Alpaca") for name in ("tau", "speedup")]
        six |= {(pair, method, task, name): value for (task, name), value in zip(places, values, strict=True)}
    seven = {(eight, method, "MMLU-Pro", name): value for method, *values in tables[7]
             for name, value in zip(("tau", "speedup", "accuracy"), values, strict=True) if value != "—"}
    ours = {("Qwen3-8B", method, "MT-Bench", name): value
            for method, *values in tables[8] for name, value in zip(("tau", "tokens_per_s"), values, strict=True)}
    numbered = {1: one, 2: two, 3: three, 4: four, 5: five, 6: six, 7: seven, 8: ours}
    return {f"arc_table{i}": table for i, table in numbered.items()}


def arc_rows(text: str, number: int) -> Iterator[list[str]]:
    """The rows of a table of numbers, their cells without markup; a bold number keeps its asterisks."""
    lines = text[text.index(f"\nTable {number}:"):].splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("|"))
    for line in lines[start:]:
        if not line.startswith("|"):
            return
        cells = [arc_cell(cell) for cell in line.strip("|").split("|")]
        if any(re.fullmatch(r"\**\d+(\.\d+)?\**", cell) for cell in cells):
            yield [cells[0].strip("*"), *cells[1:]] if number in (1, 5) else [
                ARC_ROWS.get(cell.strip("*"), cell.strip("*")) if not re.match(r"\**\d", cell) else cell
                for cell in cells]


def arc_cell(cell: str) -> str:
    """`$2.40 \\times$` or `<math>2.40 \\times</math>` -> `2.40`, with ** around it where the cell is bold."""
    cell = re.sub(r"</?b>", "**", re.sub(r"</?math[^>]*>|\\times|×", "", cell.strip())).replace("\\alpha", "α")
    bold = cell.startswith("**")
    cell = re.sub(r"\s+", " ", cell.replace("$", "").replace("*", "")).replace("( T", "(T")
    cell = re.sub(r"(\d) \)", r"\1)", cell).strip().removesuffix("%")
    return f"**{cell}**" if bold else cell
