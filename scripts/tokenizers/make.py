"""Trains small tokenizers with the reference library and records what it does.

Writes mlxrunner/tokenizer/testdata/<name>.json, each {"tokenizer": a
tokenizer.json, "texts": [{"text", "ids", "special", "decoded", "skipped"}],
"decodes": [{"ids", "text"}]}.

    python -m pip install -r scripts/tokenizers/requirements.txt
    python scripts/tokenizers/make.py
"""

import json
import pathlib
import random
import tempfile

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE.parent.parent / "mlxrunner" / "tokenizer" / "testdata"

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

CORPUS = [
    "The server answers a request, and the answer is compared with what it must be.",
    "A patch that was not applied, a backend that was not built: what fails silently hurts most.",
    "Numbers: 0 1 2 3 10 42 100 1234 98765 3.14159 1,000,000 0x1F 2026-11-30",
    "def main():\n    for i in range(10):\n        print(i, i * i)\n\treturn None\n",
    "Ein Bär läuft über die Straße. Ça va? Él está aquí. Žluťoučký kůň.",
    "Москва слезам не верит. Η γρήγορη αλεπού. ערב טוב. مرحبا بالعالم. नमस्ते दुनिया।",
    "東京都に住んでいます。你好，世界！안녕하세요 세계. สวัสดีชาวโลก",
    "I'm, you're, they've, we'll, he'd, don't, it's; I'M, YOU'RE, DON'T, IT'S.",
    "emoji 😀 😃 👩‍👩‍👧‍👦 🇩🇪 👍🏽 done",
    "CamelCaseWords and snake_case_words and kebab-case-words, HTTPServer2XX",
]

TEXTS = CORPUS + [
    "", " ", "  ", "   leading", "trailing   ", "\n", "\n\n\n", "\r\n", "\t\ttabs\t", "a\u00a0b\u2003c\u3000d",
    "Hello world", "Hello  world", "Hello   world ", " Hello", "hello\nworld\n\n  indented\n",
    "1", "12", "123", "1234", "12345678901234567890", "½ ² ٣٤٥ Ⅷ ①②",
    "'s 'S 't'T 'll'LL it'S", "don't stop 'til you''ve", "x'sy", "\u2019s \u2019t",
    "é e\u0301 \u00e9 ﬁ ﬃ Å Å ｆｕｌｌ ㍿ ①", "ẛ̣ Ǆ ǅ ǆ İ ı ß ẞ ς σ Σ", "a\u0301\u0323b\u0308",
    "\u200b\u200c\u200d\ufeff zero", "\u0000\u0001\u001f\u007f\u0085", "\ufffd broken \ufffd\ufffd",
    "👩‍👩‍👧‍👦👍🏽🇩🇪🏴󠁧󠁢󠁥󠁮󠁧󠁿", "𝕏 𝓐 𐍈 𒀀 🀄", "नमस्ते क्षत्रिय ไทย ပြည် ខ្មែរ", "מָה שְׁלוֹמְךָ مَرْحَبًا",
    "東京とトーキョー、ﾄｳｷｮｳ", "한국어 ᄒ\u1161\u11ab", "中文 mixed with English 123 和 symbols ！？",
    "!!!???...", "---===+++", "(a)[b]{c}<d>", "a.b,c;d:e", "¿¡«»“”‘’—–…", "€£¥₿ ± × ÷ ≠ ∞", "C++ C# a->b a::b /*x*/ // y",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "ab" * 150, "x" * 120, "\u2581under\u2581score \u2581", "<0x41><0x0A> <unk> <s> </s>",
    "<|begin|>hello<|end|>", "<|begin|> hello <|end|> ", "<|begin|><|begin|>", "before <mask> after", "before<mask>after", "   <mask>   ",
    "word keyword words word", "_word_ word-word word.", "NORMAL Normal normal nOrMaL", "<|begi <|begin|", "tool\u00e9 tool",
]


def byte_level(pattern=None, normalizer=None, **model):
    t = Tokenizer(models.BPE(**model))
    if normalizer:
        t.normalizer = normalizer
    if pattern:
        t.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ])
    t.decoder = decoders.ByteLevel()
    return t


def bpe_trainer(size=600, **more):
    return trainers.BpeTrainer(vocab_size=size, show_progress=False, **more)


def add(t):
    """The added tokens of every variant, with each of the marks."""
    t.add_special_tokens([AddedToken("<|begin|>", special=True, normalized=False), AddedToken("<|end|>", special=True, normalized=False)])
    t.add_tokens([
        AddedToken("<mask>", lstrip=True, normalized=False),
        AddedToken("word", single_word=True, normalized=False),
        AddedToken("Normal", normalized=True),
        AddedToken("tool", rstrip=True, normalized=False),
    ])
    return t


def template(t):
    begin, end = t.token_to_id("<|begin|>"), t.token_to_id("<|end|>")
    return processors.TemplateProcessing(single="<|begin|> $A <|end|>", special_tokens=[("<|begin|>", begin), ("<|end|>", end)])


def gpt2():
    t = byte_level()
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    t.train_from_iterator(CORPUS, bpe_trainer(initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    add(t)
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template(t)])
    return t


def llama3():
    t = byte_level(LLAMA3, ignore_merges=True)
    t.train_from_iterator(CORPUS, bpe_trainer(initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    add(t)
    t.post_processor = template(t)
    return t


def qwen():
    t = byte_level(QWEN, normalizers.NFC())
    t.train_from_iterator(CORPUS, bpe_trainer(initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return add(t)


def o200k():
    t = byte_level(O200K)
    t.train_from_iterator(CORPUS, bpe_trainer(initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return add(t)


BYTES = [f"<0x{b:02X}>" for b in range(256)]


def llama2():
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.train_from_iterator(CORPUS[:5], bpe_trainer(500, special_tokens=["<unk>", "<s>", "</s>"] + BYTES))
    t = without_bytes_added(t)
    add(t)
    t.post_processor = template(t)
    return t


def without_bytes_added(t):
    """Training needs the byte tokens as special ones; real files hold them in the vocabulary alone."""
    spec = json.loads(t.to_str())
    spec["added_tokens"] = [a for a in spec["added_tokens"] if not a["content"].startswith("<0x")]
    return Tokenizer.from_str(json.dumps(spec))


def gemma():
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Replace(" ", "\u2581")
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    t.train_from_iterator(CORPUS[:5], bpe_trainer(500, special_tokens=["<unk>"] + BYTES))
    return add(without_bytes_added(t))


def unknowns():
    t = Tokenizer(models.BPE(unk_token="[UNK]", continuing_subword_prefix="##"))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)])
    t.train_from_iterator(CORPUS[:3], bpe_trainer(200, special_tokens=["[UNK]"], continuing_subword_prefix="##"))
    t.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    return add(t)


def clip():
    t = Tokenizer(models.BPE(unk_token="[UNK]", fuse_unk=True, end_of_word_suffix="</w>"))
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()])
    t.pre_tokenizer = pre_tokenizers.Split(Regex(r"\p{L}+|\p{N}|[^\s\p{L}\p{N}]+"), "removed", invert=True)
    t.train_from_iterator(CORPUS[:3], bpe_trainer(250, special_tokens=["[UNK]"], end_of_word_suffix="</w>"))
    t.decoder = decoders.BPEDecoder("</w>")
    return add(t)


def charsmap():
    """A small table of replacements, as SentencePiece writes it."""
    rules = [("ﬁ", "fi"), ("①", "1"), ("ｆ", "f"), ("\u3000", " "), ("\u00a0", " "), ("e\u0301", "é"), ("\u200b", ""), ("㍿", "株式会社"), ("👍", "+1")]
    with tempfile.TemporaryDirectory() as d:
        d = pathlib.Path(d)
        tsv = "".join(" ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b) + "\n" for a, b in rules)
        (d / "rules.tsv").write_text(tsv)
        (d / "text").write_text("\n".join(CORPUS[:5]))
        sentencepiece.SentencePieceTrainer.train(
            input=str(d / "text"), model_prefix=str(d / "m"), vocab_size=100, hard_vocab_limit=False,
            normalization_rule_tsv=str(d / "rules.tsv"), minloglevel=2)
        from sentencepiece import sentencepiece_model_pb2 as pb
        m = pb.ModelProto()
        m.ParseFromString((d / "m.model").read_bytes())
        return m.normalizer_spec.precompiled_charsmap


def unigram(fallback):
    t = Tokenizer(models.Unigram())
    t.train_from_iterator(CORPUS, trainers.UnigramTrainer(
        vocab_size=700, show_progress=False, unk_token="<unk>", special_tokens=["<unk>", "<s>", "</s>"] + (BYTES if fallback else [])))
    spec = json.loads(without_bytes_added(t).to_str())
    spec["model"]["byte_fallback"] = fallback
    return Tokenizer.from_str(json.dumps(spec))


def t5():
    t = unigram(False)
    t.normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap()), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace("\u2581", prepend_scheme="always")])
    t.decoder = decoders.Metaspace("\u2581", prepend_scheme="always")
    add(t)
    t.post_processor = template(t)
    return t


def fallback():
    t = unigram(True)
    t.normalizer = normalizers.NFKC()
    t.pre_tokenizer = pre_tokenizers.Metaspace("\u2581", prepend_scheme="first", split=False)
    t.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace("\u2581", prepend_scheme="first")])
    return add(t)


def bert(lowercase):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=40))
    t.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=None, clean_text=True, handle_chinese_chars=True)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=500, show_progress=False, special_tokens=["[UNK]", "[CLS]", "[SEP]"]))
    t.decoder = decoders.WordPiece(cleanup=True)
    add(t)
    t.post_processor = processors.BertProcessing(("[SEP]", t.token_to_id("[SEP]")), ("[CLS]", t.token_to_id("[CLS]")))
    return t


def level(pre, normalizer=None):
    """Whole pieces as tokens show where a pre-tokenizer cuts."""
    t = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = pre
    t.train_from_iterator(TEXTS, trainers.WordLevelTrainer(vocab_size=3000, show_progress=False, special_tokens=["[UNK]"]))
    return t


VARIANTS = {
    "gpt2": gpt2, "llama3": llama3, "qwen": qwen, "o200k": o200k, "llama2": llama2, "gemma": gemma, "unknowns": unknowns,
    "clip": clip, "t5": t5, "fallback": fallback, "bert": lambda: bert(True), "bert-cased": lambda: bert(False),
    "whitespace": lambda: level(pre_tokenizers.Whitespace()),
    "punctuation": lambda: level(pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("contiguous")])),
    "digits": lambda: level(pre_tokenizers.Digits(individual_digits=False)),
    "scripts": lambda: level(pre_tokenizers.UnicodeScripts()),
    "delimiter": lambda: level(pre_tokenizers.CharDelimiterSplit("-")),
    "fixed": lambda: level(pre_tokenizers.FixedLength(3)),
    "next": lambda: level(pre_tokenizers.Split(Regex(r"[aeiou]"), "merged_with_next")),
    "previous": lambda: level(pre_tokenizers.Split(Regex(r"[aeiou]"), "merged_with_previous")),
    "nmt": lambda: level(pre_tokenizers.Metaspace("_", prepend_scheme="never"), normalizers.Sequence([normalizers.Nmt(), normalizers.NFKD(), normalizers.StripAccents()])),
    "nfd": lambda: level(pre_tokenizers.Split(" ", "isolated"), normalizers.Sequence([normalizers.NFD(), normalizers.Strip(left=True, right=False)])),
}


def record(name, t):
    spec = t.to_str(pretty=False)
    t = Tokenizer.from_str(spec)
    texts = []
    for text in TEXTS:
        ids = t.encode(text, add_special_tokens=False).ids
        special = t.encode(text).ids
        texts.append({"text": text, "ids": ids, "special": special, "decoded": t.decode(special, skip_special_tokens=False), "skipped": t.decode(special)})
    chance = random.Random(name)
    decodes = []
    for _ in range(40):
        ids = [chance.randrange(t.get_vocab_size()) for _ in range(chance.randrange(1, 12))]
        decodes.append({"ids": ids, "text": t.decode(ids, skip_special_tokens=False)})
    body = {"tokenizer": json.loads(spec), "texts": texts, "decodes": decodes}
    (OUT / f"{name}.json").write_text(json.dumps(body, ensure_ascii=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    for name, make in VARIANTS.items():
        record(name, make())
        print(name)
