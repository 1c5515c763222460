"""Wrong commands: each row is the words after `python -m bench` and what its one line on the error stream must contain.

Words that begin with `bench.` or `plots` name another module. %name% stands for a file of tests/attack/files.py. The
words of COMMON are added where a row does not give their keys."""

# ruff: noqa: E501  a row is one line
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

COMMON = ("n=1", "decoding.max_new_tokens=4", "engine.threads=1")


@dataclass(frozen=True, slots=True)
class Wrong:
    """A wrong command.

    words   after `python -m bench`, or after `python -m` where they name another module.
    says    what its line must contain.
    status  its exit status.
    known   when it can be known to be wrong: composed (no folder is made in the store), loaded (nothing is decoded), or
            decoded.
    limit   seconds of CPU time that it may take.
    """

    words: str
    says: tuple[str, ...]
    status: int
    known: str
    limit: float


KEYS = [
    ("pair.targt=x", "pair.targt", "pair.target"),
    ("+pair.tokenizer=x", "pair.tokenizer"),
    ("drafter.sampel=true", "drafter.sampel", "drafter.sample"),
    ("rule.theta=0.9", "rule.theta", "rule.q_mode"),
    ("method=mars rule.rate=0.5", "rule.rate", "rule.theta"),
    ("method=eagle3 drafter.nodes=3", "drafter.nodes", "drafter.total"),
    ("decoding.topp=1", "decoding.topp", "decoding.top_p"),
    ("decoding.max_tokens=3", "decoding.max_tokens", "decoding.max_new_tokens"),
    ("engine.cores=2", "engine.cores", "engine.threads"),
    ("draft.k=3", "draft.k", "draft.length"),
    ("task.limit=3", "task.limit"),
    ("task=gsm8k task.pth=x", "task.pth", "task.path"),
    ("task=gsm8k task.scorer.filtre=x", "task.scorer.filtre"),
    ("task=gsm8k task.shots.number=2", "task.shots.number", "task.shots.count"),
    ("judge.url=http://x", "judge.url", "judge.base_url"),
    ("tracker=wandb tracker.projct=x", "tracker.projct", "tracker.project"),
    ("store.folder=x", "store.folder", "store.dir"),
    ("output=x", "output"),
    ("store=x", "store"),
    ("decoding=x", "decoding=x", "decoding=default"),
    ("samples=3", "samples"),
    ("max_new_tokens=3", "max_new_tokens"),
    ("Method=mars", "Method"),
    ("rule=mars rule.variant.x=1", "rule.variant"),
    ("rule=either rule.third.name=mars", "rule.third"),
    ("~n", "n"),
    ("~rule", "rule"),
    ("~pair.target", "pair.target: missing"),
    ("++nn=3", "nn"),
    ("hydra.run.dirr=x", "hydra.run.dirr"),
    ("hydra/sweeper=optuna", "hydra/sweeper"),
]

CHOICES = [
    ("pair=llama4", "pair=llama4", "pair=tiny"),
    ("pair=Tiny", "pair=Tiny", "pair=tiny"),
    ("pair=", "pair"),
    ("drafter=medussa", "drafter=medussa", "drafter=medusa"),
    ("drafter=null", "drafter"),
    ("rule=null", "rule"),
    ("task=null", "task"),
    ("rule=lossles", "rule=lossles", "rule=lossless"),
    ("pruning=leaves", "pruning=leaves", "pruning=branches"),
    ("task=gsm8", "task=gsm8", "task=gsm8k"),
    ("task=/etc/passwd", "task"),
    ("engine=gpu", "engine=gpu", "engine=default"),
    ("method=mars,sps", "-m"),
    ("method={a:1}", "method"),
    ("judge=gpt", "judge=gpt", "judge=default"),
    ("tracker=mlflow", "tracker=mlflow", "tracker=none"),
    ("-m method=sps,marz", "marz", "mars"),
    ("-m task=mini_gsm,mini_x method=sps", "mini_x"),
    ("summary=csv", "summary=csv", "table"),
    ("rule=mars rule.variant=sampled", "rule.variant=sampled", "sampling"),
    ("rule=mars rule.indicator=ratio", "rule.indicator=ratio", "logit_ratio"),
    ("rule=lossless rule.q_mode=drafts", "rule.q_mode=drafts", "exact"),
    ("rule=typical rule.correction=best", "rule.correction=best", "greedy"),
    ("rule=dropmatch rule.selection=best", "rule.selection=best", "argmax"),
    ("rule=coarse rule.token=drop", "rule.token=drop", "redraw"),
    ("rule=either rule.first.name=none_such", "none_such"),
    ("rule=either rule.second.name=either", "rule"),
    ("method=eagle3 drafter.tree=static", "drafter.tree=static", "dynamic"),
    ("method=medusa drafter.tree=none_such", "drafter.tree", "none_such"),
    ("method=eagle drafter.tree=7", "drafter.tree"),
    ("drafter.name=eagle3", "drafter"),
    ("task.name=gsm8k", "task"),
    ("task=gsm8k task.scorer.name=bleu", "task.scorer", "bleu"),
    ("task=gsm8k task.split=dev", "task.split=dev", "train"),
    ("task=gsm8k task.scorer.filter=best", "task.scorer", "best"),
    ("engine.dtype=int8", "engine.dtype=int8", "float32"),
    ("engine.device=cuda:99", "engine.device=cuda:99", "engine.device=cpu"),
    ("engine.device=cuda:x", "engine.device=cuda:x", "cuda"),
    ("engine.device=''", "engine.device", "cpu"),
]

NUMBERS = ("n", "batch", "seed", "repeat", "draft.length", "decoding.temperature", "decoding.top_p", "decoding.top_k",
           "decoding.max_new_tokens", "engine.threads", "method=mars rule.theta", "method=fsd rule.threshold",
           "method=random rule.rate", "rule=typical rule.epsilon", "method=dropmatch rule.heads",
           "method=dropmatch rule.p_drop", "method=pld drafter.max_ngram", "method=eagle3 drafter.total",
           "method=eagle3 drafter.top_k", "method=early_exit drafter.exit_layer", "method=lookahead drafter.level",
           "method=coarse rule.largest", "judge.timeout_s", "pair.nodes", "task.max_new_tokens")
"""Keys that take a number; each is given every value of NO_NUMBERS."""
NO_NUMBERS = ("x", "[1]", "{a:1}", "1e999")

SYNTAX = [
    ("=3", "=3"),
    ("n==3", "n"),
    ("n=3=4", "n"),
    ("n=(3", "n"),
    ("\"n='3\"", "n='3"),
    ("rule.theta", "KEY=VALUE"),
    ("n=${seedd}", "seedd"),
    ("output.dir=${store.dir}", "output.dir"),
    ("n=${oc.env:NONE_SUCH}", "NONE_SUCH"),
    ("n=${none_such:3}", "none_such"),
    ("n=${now:%Y}x", "n"),
    ("-m n=1,2,x method=sps", "n=x"),
    ("-m n=range(1)", "n"),
    ("-m n=choice()", "n"),
    ("-m n=shuffle(interval(1,2))", "n"),
    ("n=int(x)", "n"),
    ("n=1 n=2", "n", "once"),
    ("--cfg nonsense", "--cfg"),
    ("--multirunn", "--multirunn"),
    ("-x", "-x"),
    ("--config-name", "--config-name"),
    ("--config-path nowhere", "nowhere"),
    ("--config-name nowhere method=sps", "nowhere"),
    ("--package x y", "y"),
    ("@n=3", "@n"),
    ("a b c", "KEY=VALUE"),
    ("n=3 -m extra", "extra"),
    ("ｎ=3", "ｎ"),
]

COMBINATIONS = [
    ("rule=greedy decoding.temperature=0.5", "greedy", "temperature"),
    ("drafter=none rule=fsd", "drafter=none", "rule=fsd"),
    ("drafter=prompt_lookup rule=dropmatch rule.variant=js", "drafter=prompt_lookup"),
    ("drafter=prompt_lookup pruning=branches", "drafter=prompt_lookup"),
    ("drafter=lookahead pruning=branches", "drafter=lookahead"),
    ("drafter=lookahead rule=mars rule.q_mode=draft rule.variant=sampling decoding.temperature=1", "drafter=lookahead"),
    ("method=hass", "method=hass"),
    ("drafter=hass", "pair.hass", "pair.hass="),
    ("method=judge", "rule.classifier", "bench.train judge"),
    ("rule=autojudge", "rule.classifier", "bench.train judge"),
    ("rule=arc", "rule.constants", "bench.train calibrate"),
    ("rule=autojudge rule.classifier=nowhere.json", "nowhere.json", "bench.train judge"),
    ("method=arc pair.arc=nowhere.json decoding.temperature=1", "nowhere.json", "bench.train calibrate"),
    ("method=arc pair.arc=%folder% decoding.temperature=1", "%folder%", "bench.train calibrate"),
    ("method=autojudge pair.autojudge=%folder%", "%folder%", "bench.train judge"),
    ("method=coarse rule.groups=nowhere.json", "nowhere.json"),
    ("pair.draft=null method=mars", "pair.draft"),
    ("pair.target=null", "pair.target"),
    ("pair.target=''", "pair.target"),
    ("pair.name=''", "pair.name"),
    ("pair.name=a/b", "pair.name=a/b"),
    ("pair.name=..", "pair.name"),
    ("'pair.name=a b'", "pair.name"),
    ("pair.eagle3_revision=main pair.eagle3=null", "pair.eagle3_revision"),
    ("replay=auto", "no traces", "trace=true"),
    ("replay=0.5 method=sps", "no traces", "trace=true"),
    ("replay=[x]", "replay"),
    ("task=humaneval task.samples=0", "task.samples=0", "≥ 1"),
    ("task=mt_bench task.history=reference", "task.references"),
    ("task=mt_bench task.history=theirs", "task.history=theirs", "reference"),
    ("task=mt_bench task.history=reference task.references=nowhere.jsonl", "nowhere.jsonl"),
    ("tracker=wandb tracker.timeout=-1", "tracker.timeout"),
]

REPORTS = [
    ("report=mars_tabel1", "report=mars_tabel1", "report=mars_table1"),
    ("report=", "report"),
    ("report=all,mars_fig4", "report"),
    ("report=mars_fig4 method=sps", "rule.theta"),
    ("report=mars_fig4 report.rowz=3", "report.rowz"),
    ("report=mars_fig4 report.figure=3", "report.figure"),
    ("report=mars_fig4 rule.thetta=1", "rule.thetta"),
    ("report=mars_fig4 pair=nowhere", "pair=nowhere"),
    ("report=mars_fig4 task=nowhere", "task"),
    ("report=workload", "task.path"),
    ("report=workload task.path=nowhere.jsonl", "nowhere.jsonl"),
    ("report=workload task.path=%rows.txt%", "rows.txt"),
    ("report=real_tasks data=nowhere \"report.axes.Task=[{label: x, overrides: ['task=cnn_dm', 'task.path=${data}/x.jsonl']}]\"",
     "nowhere"),
    ("report=mars_fig4 n=0", "n=0"),
    ("+sweep=mars_thet", "sweep=mars_thet", "sweep=mars_theta"),
    ("+sweep=", "sweep"),
    ("sweep=mars_theta", "sweep"),
    ("+sweep=mars_theta method=sps", "rule.theta"),
    ("judge.base_url=ftp://x judge.model=m", "judge.base_url=ftp://x", "http://"),
    ("judge.base_url=http://x", "judge.model"),
    ("judge.base_url=http://x judge.model=m judge.mode=triple", "judge.mode=triple", "pairwise"),
    ("judge.base_url=http://x judge.model=m judge.prompts=nowhere.json", "nowhere.json"),
    ("judge.base_url=http://x judge.model=m judge.references=nowhere.jsonl", "nowhere.jsonl"),
    ("judge.base_url=http://x judge.model=m judge.references=%brace.json%", "brace.json"),
    ("judge.base_url=http://x judge.model=m judge.prompts=%list.json%", "list.json"),
]

PLACES = [
    ("output.dir=%file%", "%file%"),
    ("store.dir=%file%", "%file%"),
    ("store.dir=%file%/below", "%file%"),
    ("store.dir=%loop%", "%loop%"),
    ("store.dir=%dangling%/below", "%dangling%"),
    ("store.dir=/proc/leeway", "/proc/leeway"),
    ("output.dir=/sys/leeway", "/sys/leeway"),
    ("store.dir=/dev/null", "/dev/null"),
    (f"store.dir={'x' * 300}", "xxx", "name too long"),
    (f"pair.name={'x' * 300}", "pair.name"),
    ("store.dir=''", "store.dir"),
    ("store.dir=null", "store.dir"),
    ("store.dir=[a]", "store.dir"),
    ("store.dir=3", "store.dir"),
    ("-m method=sps,ar store.dir=%file%", "%file%"),
    ("replay=0.5 store.dir=%file%", "%file%"),
    ("report=mars_fig4 output.dir=/proc/leeway store.dir=%folder%", "/proc/leeway"),
    ("report=workload task.path=%fine.jsonl% output.dir=%file%", "%file%"),
    ("--config-dir nowhere method=sps", "nowhere"),
    ("--config-dir %file% method=sps", "%file%"),
    ("--config-dir %yaml_broken% method=own", "own.yaml"),
    ("--config-dir %yaml_object% method=own", "own"),
    ("--config-dir %yaml_list% method=own", "own"),
    ("--config-dir %yaml_text% method=own", "own"),
    ("--config-dir %yaml_binary% method=own", "own"),
    ("--config-dir %yaml_default% method=own", "none_such"),
    ("--config-dir %yaml_loop% method=own", "own"),
    ("--config-dir %yaml_key% method=own", "thetta"),
    ("--config-dir %yaml_bomb% method=own", "own"),
    ("--config-dir %yaml_task% task=own", "7"),
    ("--config-dir %yaml_report% report=own", "report", "kind"),
]

PROMPTS = [
    *((f"task=prompts task.path=%{name}%", name, *says) for name, *says in (
        ("empty.jsonl",), ("blank.jsonl",), ("noid.jsonl", "line 1"), ("twice.jsonl", "line 2"), ("both.jsonl", "line 1"),
        ("neither.jsonl", "line 1"), ("number.jsonl", "line 1"), ("list.jsonl", "line 1"), ("torn.jsonl", "line 2"),
        ("deep.jsonl", "line 1"), ("latin.jsonl", "UTF-8"), ("utf16.jsonl", "UTF-8"), ("zeros.jsonl",), ("binary.jsonl",),
        ("escape.jsonl", "line 1"), ("surrogate.jsonl", "line 1"), ("float_ids.jsonl", "line 1"),
        ("negative_ids.jsonl", "line 1"), ("no_ids.jsonl", "line 1"), ("role.jsonl", "line 1"),
        ("assistant.jsonl", "line 1"), ("no_messages.jsonl", "line 1"), ("content.jsonl", "line 1"), ("rows.txt",),
        ("rows.jsonl.gz",), ("brace.json",), ("folder",), ("loop",), ("dangling",), ("fifo.jsonl",))),
    ("task=prompts task.path=/dev/zero", "/dev/zero"),
    ("task=prompts task.path=/dev/null", "/dev/null"),
    ("task=prompts task.path=/proc/self/mem", "/proc/self/mem"),
    ("task=prompts task.path=''", "task.path"),
    ("task=prompts task.path=[a]", "task.path"),
]

DATASETS = [
    *((f"task=dataset task.prompt=x task.path=%{name}%", name, *says) for name, *says in (
        ("empty.jsonl",), ("torn.jsonl", "line 2"), ("number.jsonl",), ("deep.json",), ("rows.json",), ("rows.csv",),
        ("rows.parquet",), ("rows.jsonl.gz",), ("rows.txt",), ("folder",), ("latin.jsonl", "UTF-8"),
        ("turns.jsonl", "turns"), ("loop",), ("bomb.jsonl.gz",), ("bomb.csv.gz",),
        ("bomb.parquet",))),
    *((f"task=dataset task.path=%rows.jsonl% task.prompt=x {words}", *says) for words, *says in (
        ("task.where=1/0", "1/0"),
        ("task.where=missing", "missing"),
        ("task.where=\"'(('\"", "(("),
        ("task.where=\"'range(10**12)|list'\"", "range"),
        ("task.where=\"question=='none'\"", "task.where"),
        ("task.id=1/0", "1/0"),
        ("n=2 task.id=\"'7'\"", "7"),
        ("\"task.target='{{ answer'\"", "row 1", "template"),
        ("\"task.target='{{ 1/0 }}'\"", "row 1", "division by zero"),
        ("+task.keep.a=1/0", "1/0"),
        ("task.keep=[a]", "task.keep"),
        ("task.stop=3", "task.stop"),
        ("task.samples=-1", "task.samples=-1"),
        ("task.shots.count=2", "task.shots"),
        ("task.shots.count=2 task.shots.source=nowhere.jsonl", "nowhere.jsonl"),
        ("task.scorer.name=lm_eval", "task.scorer"),
        ("task.judged=arena", "task.judged=arena"),
        ("task.version=0", "task.version=0"),
        ("task.split=other task.splits=[test]", "task.split=other"),
        ("task.history=reference", "task.references"))),
    *((f"task=dataset task.path=%rows.jsonl% \"task.prompt='{template}'\"", *says) for template, *says in (
        ("{{ missing }}", "missing"),
        ("{{ question", "row 1"),
        ("{% for i in range(10**12) %}x{% endfor %}", "row 1"),
        ("{{ x*10**10 }}", "row 1"),
        ("{{ question.__class__.__mro__[1].__subclasses__() }}", "row 1"),
        ("{% include \\\"/etc/passwd\\\" %}", "row 1"),
        ("{{ cycler.__init__.__globals__ }}", "row 1"))),
    ("task=dataset task.path=%rows.jsonl%", "task.prompt"),
    ("n=2 task=dataset task.prompt=x task.path=%ids.jsonl%", "row 2"),
    ("task=dataset task.prompt=x", "task.path"),
    ("task=gsm8k task.path=nowhere.jsonl", "nowhere.jsonl"),
]

MODELS = [
    *((f"pair=local pair.target=%{name}% method=ar", name, *says) for name, *says in (
        ("config_brace",), ("config_list",), ("config_null",), ("config_text",), ("config_empty",), ("config_deep",),
        ("config_binary",), ("config_missing",), ("config_words",), ("weights_missing", "no weights"),
        ("weights_index", "no weights"), ("folder",), ("file",), ("tokenizer_brace", "tokenizer.json"),
        ("tokenizer_list", "tokenizer.json", "list"), ("tokenizer_config_list", "tokenizer_config.json"),
        ("generation_brace", "generation_config.json"),
        ("empty.gguf",), ("garbage.gguf",), ("huge.gguf",), ("text.gguf",))),
    ("pair=local pair.target=nowhere/at/all method=ar", "nowhere/at/all", "no such folder"),
    ("pair=local pair.target=/etc method=ar", "/etc"),
    ("pair=local pair.target=random:nowhere method=ar", "random:nowhere", "config.json"),
    ("pair=local pair.target=random:%config_list% method=ar", "config_list"),
    ("pair=local pair.target=package:x method=ar", "package:x"),
    ("pair=local pair.target=nobody-at-all/none-such method=ar", "nobody-at-all/none-such"),
    ("pair.draft=%config_vocabulary% method=sps", "4096"),
    ("pair.draft=nowhere.gguf method=sps", "nowhere.gguf"),
    ("pair.eagle3=%garbage.gguf% method=eagle3", "pair.eagle3"),
    ("pair.eagle3=%head_list% method=eagle3", "head_list"),
    ("pair.eagle3=%head_brace% method=eagle3", "head_brace"),
    ("pair.eagle3=%head_weights% method=eagle3", "head_weights", "no weights"),
    ("pair.medusa=%medusa_list% method=medusa", "medusa_list"),
    ("pair.chat_template=nowhere.jinja", "nowhere.jinja"),
    ("pair.chat_template=%broken.jinja%", "broken.jinja"),
    ("pair.chat_template=%folder%", "pair.chat_template"),
    ("method=eagle drafter.tree=%tree_broken.yaml%", "tree_broken.yaml"),
    ("method=eagle drafter.tree=%tree_object.yaml%", "tree_object.yaml"),
    ("method=eagle drafter.tree=%tree_list.yaml%", "tree_list.yaml"),
    ("method=eagle drafter.tree=%tree_orphan.yaml%", "tree_orphan.yaml"),
    ("method=eagle drafter.tree=%tree_words.yaml%", "tree_words.yaml"),
    ("method=eagle drafter.tree=%tree_empty.yaml%", "tree_empty.yaml"),
    ("method=eagle drafter.tree=nowhere.yaml", "nowhere.yaml"),
    ("method=eagle drafter.tree=%folder%", "folder"),
]

RULE_FILES = [
    *((f"method=arc decoding.temperature=1 pair.arc=%{name}%", name) for name in (
        "brace.json", "list.json", "null.json", "deep.json", "binary.json", "arc_other.json", "arc_short.json")),
    *((f"method=autojudge pair.autojudge=%{name}%", name) for name in (
        "brace.json", "list.json", "deep.json", "binary.json", "judge_other.json", "file")),
    ("method=coarse rule.groups=%brace.json%", "brace.json"),
    ("method=coarse rule.groups=%groups.json%", "groups.json"),
]

LOADED = [
    *((f"pair=local pair.target=%{name}% method=ar", name) for name in (
        "config_object", "config_negative", "config_kind", "config_heads", "config_zero", "config_remote",
        "weights_empty", "weights_garbage", "weights_header", "weights_torn", "weights_pickle")),
    *((f"pair=local pair.target=%{name}% method=ar", *says) for name, *says in (
        ("config_more", "model.layers"), ("config_fewer", "model.layers"), ("weights_nan", "NaN"),
        ("weights_less", "up_proj"), ("weights_more", "layers.9"), ("weights_shape", "norm"), ("config_vocabulary", "embed"),
        ("tokenizer_missing", "tokenizer"), ("template_broken", "template"), ("template_endless", "Range too big"))),
    ("pair.chat_template=%endless.jinja%", "Range too big"),
    ("pair.chat_template=%raises.jinja%", "never"),
    ("drafter=eagle3 rule=autojudge rule.classifier=models/tiny/autojudge.json", "models/tiny/draft", "bench.train judge"),
    ("method=sps task=prompts task.path=%wide.jsonl%", "50000000 characters", "1024"),
    ("task=spec_bench", "task.path"),
    ("task=alpaca", "alpaca", "task.path"),
    ("pair.draft=%draft_other_words% method=sps", "draft_other_words", "vocabulary"),
    ("pair.draft=models/tiny/eagle3 method=sps", "models/tiny/eagle3"),
    ("pair.eagle3=%head_garbage% method=eagle3", "head_garbage"),
    ("pair.eagle3=%head_map% method=eagle3", "d2t"),
    ("pair.medusa=models/tiny/eagle3 method=medusa", "models/tiny/eagle3"),
    ("pair.eagle3=models/tiny/medusa method=eagle3", "models/tiny/medusa"),
    ("method=medusa drafter.tree=%tree_deep.yaml%", "tree_deep.yaml", "heads"),
    ("method=early_exit drafter.exit_layer=8", "exit_layer", "8 layers"),
    ("method=coarse rule.groups=%groups_unknown.json%", "groups_unknown.json"),
    ("method=sps task=prompts task.path=%unknown_ids.jsonl%", "999999"),
    ("method=sps task=prompts task.path=%huge_ids.jsonl%", "99999999999999999999999"),
    ("method=sps task=prompts task.path=%long.jsonl%", "1024"),
]

SIZES = [
    ("method=sps draft.length=1000000", "draft.length=1000000"),
    ("method=eagle3 drafter.depth=100000", "drafter.depth=100000"),
    ("method=eagle3 drafter.total=1000000000", "drafter.total=1000000000"),
    ("method=eagle3 drafter.top_k=1000000", "drafter.top_k=1000000"),
    ("method=lookahead drafter.level=1000000", "drafter.level=1000000"),
    ("method=lookahead drafter.window=100000000", "drafter.window=100000000"),
    ("method=dropmatch rule.heads=10000000", "rule.heads=10000000"),
    ("method=coarse rule.largest=10000000", "rule.largest=10000000"),
    ("repeat=1000000000", "repeat=1000000000"),
    ("task=gsm8k task.samples=1000000000", "task.samples=1000000000"),
    ("bench.grow_tree --nodes 1000000000 drafter=medusa", "nodes=1000000000"),
]

COMMANDS = [
    ("bench.cycle --prompt x", "--prompt"),
    ("bench.cycle --prompt 99999 task=gsm8k", "--prompt 99999", "0 to 1318"),
    ("bench.cycle --prompt -1", "--prompt -1"),
    ("bench.cycle --cycle 0", "--cycle 0"),
    ("bench.cycle --nonsense", "--nonsense"),
    ("bench.cycle method=marz", "method=marz"),
    ("bench.grow_tree", "--nodes"),
    ("bench.grow_tree --nodes 0 drafter=medusa", "nodes=0"),
    ("bench.grow_tree --nodes x drafter=medusa", "nodes=x"),
    ("bench.grow_tree --nodes 3 drafter=medussa", "drafter=medussa"),
    ("bench.grow_tree --nodes 3 drafter=none", "drafter.tree"),
    ("bench.grow_tree --nodes 3 --name a/b drafter=medusa", "name=a/b"),
    ("bench.train calibrate prompts=0", "prompts=0"),
    ("bench.train calibrate prompts=x", "prompts=x"),
    ("bench.train calibrate delta=2", "delta=2"),
    ("bench.train calibrate pair=nowhere", "pair=nowhere"),
    ("bench.train calibrate alternative=best", "alternative=best"),
    ("bench.train calibrate out=%folder%", "%folder%"),
    ("bench.train calibrate work=%file%", "%file%"),
    ("bench.train calibrate nonsense=1", "nonsense"),
    ("bench.train heads heads=[eagle9]", "eagle9"),
    ("bench.train heads heads=[]", "heads"),
    ("bench.train heads target=nowhere/at/all", "nowhere/at/all"),
    ("bench.train heads data=nowhere.jsonl", "nowhere.jsonl"),
    ("bench.train heads eagle3.tokens=x", "eagle3.tokens=x"),
    ("bench.train heads out=%file%", "%file%"),
    ("bench.train judge kind=other", "kind=other"),
    ("bench.train judge labels=nowhere.jsonl", "nowhere.jsonl"),
    ("bench.train judge kind=judge", "labels"),
    ("bench.train judge task=mini_gms", "task=mini_gms"),
    ("models.tiny.train pair stages=[nothing]", "nothing"),
    ("models.tiny.train pair target.hidden=x", "target.hidden=x"),
    ("bench.cost to=cost/x.yaml --prompts 0", "prompts=0"),
    ("bench.speed --n x", "n=x"),
    ("bench.speed pair.target=nowhere/at/all", "nowhere/at/all"),
    ("bench.speed --before %folder%", "--before", "checkout"),
    ("models.tiny.train card --nonsense", "--nonsense"),
    ("bench.real_model nonsense", "nonsense"),
    ("bench.offline_kit python=3.10", "python=3.1", "3.12"),
    ("bench.offline_kit have=nowhere", "have=nowhere"),
    ("bench.offline_kit have=%binary.jsonl%", "line 1"),
    ("bench.offline_kit pairs=[nothing]", "pair=nothing"),
    ("bench.offline_kit pairs=[llama31_8b]", "pair.target=meta-llama", "smollm2"),
    ("bench.exchange", "to=lm_eval|parquet|spec_bench", "from=spec_bench"),
    ("bench.exchange to=eagle", "to=eagle", "spec_bench"),
    ("bench.exchange to=vllm", "to=vllm", "0.2 was the last"),
    ("bench.exchange to=parquet store.dir=nowhere", "store.dir=nowhere"),
    ("bench.exchange to=parquet store.dir=.", "store.dir=.", "no cell"),
    ("bench.exchange from=lm_eval file=%rows.json%", "from=lm_eval", "0.2 was the last"),
    ("bench.exchange from=spec_bench", "file=FILE"),
    ("bench.exchange from=spec_bench file=%turns.jsonl%", "line 1", "choices"),
    ("bench.exchange from=spec_bench file=%deep.jsonl%", "line 1", "nested"),
    ("bench.exchange from=spec_bench file=%number.jsonl%", "line 1", "not a JSON object"),
    ("bench.exchange from=spec_bench file=%binary.jsonl%", "line 1"),
    ("bench.exchange from=spec_bench file=%zeros.jsonl%", "line 1", "not JSON"),
    ("bench.exchange from=spec_bench file=%folder%", "%folder%", "cannot be read"),
    ("bench.exchange from=spec_bench file=%empty.jsonl%", "empty.jsonl", "it is empty"),
    ("bench.exchange from=parquet file=%file%", "only written"),
    ("plots", "command", "--help"),
    ("plots x", "'x'", "tree"),
    ("plots tree --outputt x", "--outputt"),
    ("plots tree nowhere.json", "nowhere.json"),
    ("plots tree %brace.json%", "brace.json"),
    ("plots tree %list.json%", "list.json"),
    ("plots tree %binary.json%", "binary.json"),
    ("plots tree %deep.json%", "deep.json"),
]


def _numbers() -> list[tuple[str, ...]]:
    return [(f"{key}={value}", key.split()[-1]) for key in NUMBERS for value in NO_NUMBERS]


STRATA: dict[str, tuple[list[tuple[str, ...]], int, str, float]] = {
    "keys": (KEYS, 2, "composed", 10),
    "choices": (CHOICES, 2, "composed", 10),
    "numbers": (_numbers(), 2, "composed", 10),
    "syntax": (SYNTAX, 2, "composed", 10),
    "combinations": (COMBINATIONS, 2, "composed", 10),
    "reports": (REPORTS, 2, "composed", 30),
    "places": (PLACES, 2, "composed", 20),
    "prompts": (PROMPTS, 2, "composed", 20),
    "datasets": (DATASETS, 2, "composed", 30),
    "models": (MODELS, 2, "composed", 20),
    "files of rules": (RULE_FILES, 1, "loaded", 20),
    "loaded": (LOADED, 1, "loaded", 60),
    "sizes": (SIZES, 2, "composed", 60),
    "commands": (COMMANDS, 2, "composed", 30),
}
"""Kind -> (rows, exit status, when it can be known, seconds)."""


def rows() -> Iterator[Wrong]:
    """Every row of the table."""
    for table, status, known, limit in STRATA.values():
        for words, *says in table:
            yield Wrong(words, tuple(says), status, known, limit)


def some(count: int) -> list[Wrong]:
    """About `count` rows, the same each time: evenly spaced over the table, so that every kind has its share."""
    every = list(rows())
    return [every[number * len(every) // count] for number in range(count)]
