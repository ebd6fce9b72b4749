"""Records what Jinja2 makes of templates, under the settings that the reference
library renders chat templates with.

Writes mlxrunner/jinja/testdata/constructs.json: small templates, each with what
comes out or that it fails. With a folder of real templates (models/templates of
llama.cpp), also upstream.json: for each of them and each conversation the
SHA-256 of the text, or null where it fails.

    python -m pip install -r scripts/templates/requirements.txt
    python scripts/templates/make.py [FOLDER]
"""

import datetime
import hashlib
import json
import pathlib
import sys

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

OUT = pathlib.Path(__file__).resolve().parent.parent.parent / "mlxrunner" / "jinja" / "testdata"
NOW = datetime.datetime(2026, 11, 30, 12, 34, 56)


class Generation(Extension):
    """The block that marks what an assistant said."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

    @staticmethod
    def _same(caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def render(source, names):
    e = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    e.filters["tojson"] = tojson
    e.globals["raise_exception"] = raise_exception
    e.globals["strftime_now"] = NOW.strftime
    return e.from_string(source).render(**names)


def outcome(source, names):
    """The text, or None where the template fails."""
    try:
        return render(source, names)
    except Exception:
        return None


NAMES = {
    "s": "Hello <World> & 'you' \"é\" 😀", "pad": "  a b \n", "n": 7, "neg": -7, "f": 2.5, "big": 1e20, "small": 0.00001, "t": True, "none": None,
    "l": [3, 1, 2], "words": ["b", "A", "c", "a"], "empty": [], "text": "one two  three\nfour\n\nfive",
    "d": {"b": 1, "a": [1, 2.0, None, True, "x\n'"], "items": "shadowed", "c": {"z": 1, "y": "é\u2028<>&"}},
    "people": [{"name": "Bo", "age": 3, "of": {"x": 1}}, {"name": "al", "age": 1}, {"name": "Cy", "age": 2, "of": {"x": 0}}],
}

CONSTRUCTS = [
    # white space
    "a\n{% if t %}\nb\n{% endif %}\nc\n", "a\n  {% if t %}  \n  b\n  {% endif %}  \nc", "a\n  {%- if t -%}  \n  b\n  {%- endif -%}  \nc",
    "a\n  {%+ if t +%}\nb{% endif %}\nc", "x {# c #}\ny", "  {# c #}\n  y", "x {#- c -#}  \n y", "a {{ n }}\n\n{{ n -}}  \n b", "{{ n }}{{- n }}  {{- n -}}\n",
    "{% for x in l %}{{ x }}{% if not loop.last %}, {% endif %}{% endfor %}", "{% for x in l %}\n- {{ x }}\n{% endfor %}\nend\n\n",
    "{% raw %}{{ n }} {% if %}{% endraw %}\nz", "  {%- raw -%}  x  {%- endraw -%}  z", "{% if t %}{% endif %} {% if t %}x{% endif %}", "\r\na\r\n{% if t %}\r\nb{% endif %}",
    # values as text
    "{{ s }}", "{{ n }} {{ neg }} {{ f }} {{ big }} {{ small }} {{ 1e16 }} {{ 1e15 }} {{ 100.0 }} {{ 0.1 + 0.2 }}", "{{ t }} {{ none }} {{ missing }}|", "{{ l }} {{ d }} {{ (1,) }} {{ () }} {{ (1, 'a') }}",
    "{{ ['it\\'s', 'say \"hi\"', 'both \\' \"', 'tab\\t', '\\x00\\x1f\\x7f', 'é', '\\u200b', '\\\\'] }}", "{{ 'a' 'b' \"c\" }}", "{{ 'x\\ny\\q\\101\\x41\\u0042' }}",
    "{{ 0x1F if false else 1_000 }}", "{{ [1, 2,] }} {{ {'a': 1, } }} {{ {} }} {{ [] }}", "{{ {1: 'a', 'b': 2}[1] }}", "{{ {[1]: 2} }}",
    # operators
    "{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ 2 ** 3 }} {{ 2 ** -1 }} {{ 7.5 // 2 }} {{ 7.5 % 2 }}", "{{ 1 / 0 }}", "{{ 1 // 0 }}",
    "{{ 'a' + 'b' }} {{ 'a' * 3 }} {{ 2 * 'b' }} {{ [1] + [2] }} {{ [1] * 2 }} {{ 'a' ~ 1 ~ none ~ missing ~ [1] }}", "{{ 'a' + 1 }}", "{{ 1 + none }}", "{{ missing + 'a' }}", "{{ [1] + (2,) }}",
    "{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 1 == 1.0 == true }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ none == missing }} {{ missing == missing }} {{ 1 != 'x' }}", "{{ 1 < 'a' }}", "{{ none < 1 }}",
    "{{ 1 in l }} {{ 5 not in l }} {{ 'a' in d }} {{ 'll' in s }} {{ 1 in missing }}", "{{ 1 in 'a' }}", "{{ missing in 'abc' }}", "{{ 1 in none }}", "{{ missing in l }}",
    "{{ not t }} {{ t and n }} {{ none or 'x' }} {{ 0 or '' or [] }} {{ not missing }}", "{{ 'y' if t }} {{ 'y' if none }}| {{ 'a' if none else 'b' if none else 'c' }}", "{{ -n }} {{ +n }} {{ - -n }} {{ -f }} {{ -2 ** 2 }} {{ -n|abs }}", "{{ -s }}",
    "{{ n == 7 and s is string or false }}", "{{ (1 if t else 2) + 3 }}",
    # attributes and subscripts
    "{{ d.b }} {{ d['b'] }} {{ d.c.y }} {{ d.nope }}| {{ d['nope'] }}|", "{{ d.nope.more }}", "{{ d['items'] }}", "{{ d.items() | list }}", "{{ d.keys() | list }} {{ d.values() | length }}", "{{ none.x }}|", "{{ n.x }}|", "{{ missing.x }}", "{{ missing['x'] }}",
    "{{ l[0] }} {{ l[-1] }} {{ l[9] }}| {{ s[0] }} {{ s[-1] }} {{ l.0 }}", "{{ l[9].x }}", "{{ l[1:] }} {{ l[:-1] }} {{ l[::-1] }} {{ l[::2] }} {{ s[1:4] }} {{ s[::-1] }} {{ (1,2,3)[1:] }} {{ l[5:] }} {{ l[-9:2] }}", "{{ l['x'] }}|", "{{ l[::0] }}", "{{ none[1:] }}|",
    "{{ d.get('b') }} {{ d.get('q') }} {{ d.get('q', 5) }} {{ d.get('q', {}).get('r', 'deep') }}", "{{ s.nope() }}", "{{ s() }}", "{{ d.update({'x': 1}) }}", "{{ l.append(1) }}", "{{ l.pop() }}",
    # methods
    "{{ pad.strip() }}|{{ pad.lstrip() }}|{{ pad.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'abcab'.lstrip('ab') }}", "{{ text.split() }} {{ text.split('\n') }} {{ text.split(' ', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ text.rsplit(None, 1) }} {{ text.split(none, 2) }} {{ text.splitlines() }} {{ text.splitlines(true) }}", "{{ 'a'.split('') }}",
    "{{ s.startswith('Hell') }} {{ s.endswith('x') }} {{ s.startswith(('x', 'H')) }} {{ s.upper() }} {{ s.lower() }} {{ 'hELLO wORLD'.capitalize() }} {{ \"they're bill's\".title() }}", "{{ s.startswith(l) }}",
    "{{ s.replace('l', 'L') }} {{ s.replace('l', 'L', 1) }} {{ s.find('World') }} {{ s.find('zzz') }} {{ s.rfind('o') }} {{ s.count('o') }} {{ s.index('W') }}", "{{ s.index('zzz') }}", "{{ '-'.join(words) }}", "{{ '-'.join(l) }}",
    "{{ '12'.isdigit() }} {{ ''.isdigit() }} {{ 'ab1'.isalnum() }} {{ 'ab'.isalpha() }} {{ ' '.isspace() }} {{ 'AB'.isupper() }} {{ 'ab'.islower() }}", "{{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.partition('=') }} {{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.py'.removesuffix('.py') }}",
    "{{ 'a'.ljust(3) }}|{{ 'a'.rjust(3, '.') }}|{{ 'a'.center(4) }}|{{ '7'.zfill(3) }}", "{{ '{} {}'.format(1, 'a') }} {{ '{1} {0}'.format(1, 2) }} {{ '{a}'.format(a=3) }} {{ '{:>5}|{:<5}|{:^5}|{:05d}|{:.2f}'.format('a', 'b', 'c', 42, 3.14159) }} {{ '{{x}}'.format() }} {{ '{!r}'.format('a') }}", "{{ '{}'.format() }}",
    "{{ '%s and %d' % ('a', 3) }} {{ '%s' % n }} {{ '%5.1f|%-5s|%05d|%x|%%' % (f, 'a', 42, 255) }} {{ '%(a)s' % {'a': 1} }} {{ '%r' % ('a',) }}", "{{ '%s %s' % ('a',) }}", "{{ '%s' % ('a', 'b') }}", "{{ '%d' % 'a' }}", "{{ [1, 2, 1].count(1) }} {{ [1, 2].index(2) }}",
    # filters
    "{{ s | length }} {{ l | length }} {{ d | length }} {{ missing | length }} {{ l | count }}", "{{ n | length }}", "{{ pad | trim }}| {{ 'xax' | trim('x') }} {{ s | upper }} {{ s | lower }} {{ 'a b-c' | title }} {{ 'aB' | capitalize }} {{ missing | trim }}|",
    "{{ missing | default('d') }} {{ none | default('d') }} {{ none | default('d', true) }} {{ '' | d('e', boolean=true) }} {{ missing | default }}|", "{{ l | join(', ') }} {{ l | join }} {{ people | join(',', attribute='name') }} {{ d | join('+') }} {{ 'abc' | join('.') }} {{ l | map('string') | join('') }}",
    "{{ l | first }} {{ l | last }} {{ empty | first }}| {{ s | first }}", "{{ (empty | first).x }}", "{{ l | sort }} {{ words | sort }} {{ words | sort(case_sensitive=true) }} {{ l | sort(reverse=true) }} {{ people | sort(attribute='age') | map(attribute='name') | list }}", "{{ ['a', 1] | sort }}",
    "{{ l | min }} {{ l | max }} {{ people | max(attribute='age') }} {{ l | sum }} {{ people | sum(attribute='age') }} {{ l | reverse | list }} {{ 'abc' | reverse }} {{ words | unique | list }}", "{{ '3' | int + 1 }} {{ 'x' | int }} {{ 'x' | int(9) }} {{ '3.7' | int }} {{ 3.7 | int }} {{ 'ff' | int(0, 16) }} {{ '2.5' | float }} {{ 'x' | float }} {{ 3 | string + 'a' }} {{ 2.567 | round(2) }} {{ 2.5 | round }} {{ 2.1 | round(0, 'ceil') }}",
    "{{ people | map(attribute='of.x', default='-') | list }} {{ people | selectattr('of') | map(attribute='name') | list }} {{ people | selectattr('age', 'gt', 1) | list | length }} {{ people | rejectattr('name', 'equalto', 'Bo') | map(attribute='age') | list }} {{ l | select('odd') | list }} {{ l | reject('odd') | list }} {{ [0, 1, none] | select | list }} {{ none | selectattr('x') | list }}",
    "{{ people | map('upper') | first }}", "{{ people | map(attribute='of.x') | list }}", "{{ words | map('upper') | list }} {{ words | map('replace', 'a', 'z') | list }}", "{{ people | selectattr('name', 'nope') | list }}", "{{ d | dictsort(false, 'key') | map('first') | list }} {{ {'b': 1, 'A': 2} | dictsort }} {{ {'b': 1, 'A': 2} | dictsort(by='value', reverse=true) }} {{ {'x': 1} | items | list }}", "{{ people | groupby('age') | map('first') | list }}",
    "{{ 'a\nb\n\nc' | indent }} {{ 'a\nb' | indent(2, true) }} {{ 'a\n\nb' | indent(1, blank=true) }} {{ 'a\nb' | indent('> ', first=true) }} {{ 'a\nb\n' | indent }}|", "{{ s | escape }} {{ s | e | length }} {{ '<b>' | safe }} {{ '<b>' | safe + '<i>' }} {{ '<i>' + '<b>' | safe }} {{ ('<b>' | safe) ~ '<i>' }}", "{{ s | replace('l', '1') }} {{ 'aaa' | replace('a', 'b', 2) }} {{ 'a b' | wordcount }} {{ [1,2,3,4,5] | batch(2) | list }} {{ [1,2,3] | batch(2, 'x') | list }} {{ 'abc' | list }} {{ 'x' | center(5) }}|", "{{ '%s-%s' | format(1, 2) }}", "{{ s | nope }}", "{% if none %}{{ s | nope }}{% endif %}ok", "{{ 5 | abs }} {{ -2.5 | abs }}",
    # tojson
    "{{ d | tojson }}", "{{ d | tojson(indent=2) }}", "{{ [] | tojson(indent=2) }} {{ {} | tojson(indent=4) }} {{ [[], {}] | tojson(indent=1) }}", "{{ s | tojson }} {{ '\\u2028\\x07\\b\\f\\\\u2028' | tojson }} {{ d | tojson(sort_keys=true) }} {{ s | tojson(ensure_ascii=true) }} {{ d | tojson(separators=(',', ':')) }}", "{{ missing | tojson }}", "{{ [1.0, 1e20, 1e-7, none, true] | tojson }}", "{{ d.keys() | tojson }}", "{{ {1: 2} | tojson }}",
    # tests
    "{{ missing is defined }} {{ n is defined }} {{ missing is undefined }} {{ none is none }} {{ missing is none }} {{ missing is not none }} {{ n is not none }}", "{{ s is string }} {{ n is number }} {{ t is number }} {{ n is integer }} {{ t is integer }} {{ f is float }} {{ t is boolean }} {{ d is mapping }} {{ l is sequence }} {{ d is sequence }} {{ s is sequence }} {{ s is iterable }} {{ n is iterable }} {{ missing is iterable }} {{ n is sequence }}",
    "{{ n is odd }} {{ n is even }} {{ n is divisibleby 7 }} {{ n is divisibleby(2) }} {{ n is eq 7 }} {{ n is equalto(7) }} {{ n is gt 3 }} {{ n is ne 3 }} {{ n is in l }} {{ 1 is in l }} {{ t is true }} {{ 1 is true }} {{ t is false }} {{ 'a' is lower }} {{ 'A' is upper }} {{ none is sameas none }} {{ range is callable }}", "{{ n is not odd and n is odd or false }}", "{{ n is nope }}", "{{ not n is odd }}", "{{ n is defined and n }}", "{{ s is string if t else 1 }}",
    # statements
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a', 'b') }}{{ loop.depth }};{% endfor %}", "{% for x in empty %}x{% else %}none{% endfor %}", "{% for x in l if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% else %}no{% endfor %}", "{% for x in none %}{% endfor %}", "{% for x in missing %}{% else %}empty{% endfor %}", "{% for c in 'ab' %}{{ c }}.{% endfor %}{% for k in d %}{{ k }}{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% if x == 2 %}{% break %}{% endif %}{% endfor %}", "{% for x in [1, 2, 3] %}{% for y in [1, 2] %}{% if y == 2 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}{% endfor %}", "{% for x in people %}{{ loop.changed(x.age > 1) }} {% endfor %}", "{% for a, b in [(1, 2), [3, 4]] %}{{ a }}{{ b }} {% endfor %}", "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{% for x in [[1, [2]], [3]] recursive %}{{ x if x is number else loop(x) }}{% endfor %}", "{% for i in range(3) %}{{ i }}{% endfor %}{{ range(2, 10, 3) | list }}{{ range(3, 0, -1) | list }}", "{{ range(1000000) | length }}",
    "{% set x = 1 %}{% if t %}{% set x = 2 %}{% endif %}{{ x }}", "{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}", "{% set ns = namespace(x=0, l=[]) %}{% for i in l %}{% set ns.x = ns.x + i %}{% set ns.l = ns.l + [i] %}{% endfor %}{{ ns.x }} {{ ns.l }} {{ ns.nope }}|", "{% set d.x = 1 %}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a, b = 1, 2, 3 %}", "{% set x %}a{{ n }}\n{% endset %}[{{ x }}]", "{% set x | upper | trim %} a {% endset %}[{{ x }}]", "{% set x = [1,\n 2] %}{{ x }}", "{% set x = 1, 2 %}{{ x }}",
    "{% macro m(a, b='d') %}{{ a }}-{{ b }}{% endmacro %}{{ m(1) }} {{ m(1, 2) }} {{ m(b=3, a=4) }} {{ m() }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(q=2) }}", "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "{% macro m(x) %}{% if x > 0 %}{{ x }}{{ m(x - 1) }}{% endif %}{% endmacro %}{{ m(3) }}", "{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}in{% endcall %}", "{% macro m() %}{{ caller(1) }}{% endmacro %}{% call(x) m() %}got {{ x }}{% endcall %}", "{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}", "{% macro m(a) %}{% set a = a ~ '!' %}{{ a }}{% endmacro %}{{ m('x') | upper }}", "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}late{% endmacro %}{{ a() }}",
    "{% filter upper %}a{{ n }}b{% endfilter %}", "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}|", "{% generation %}said{% endgeneration %}", "{{ dict(a=1, b=2) }} {{ dict({'x': 1}, y=2) }}", "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}", "{% set j = joiner('|') %}{{ j() }}a{{ j() }}b", "{{ raise_exception('stop') }}", "{{ strftime_now('%d %b %Y %H:%M:%S %A %B %j') }}",
    # what is refused
    "{% if %}", "{% for %}", "{{ }}", "{{ n", "{% if t %}", "{% endif %}", "{% nope %}", "{{ 'a }}", "{# open", "{% for x in l %}{% endif %}", "{{ n | }}", "{{ (n }}", "{{ [1, }}", "{% include 'x' %}", "{% extends 'x' %}", "{% import 'x' as y %}", "{{ 1 2 }}", "{{ n. }}", "{% break %}", "{{ @ }}", "{% set %}", "{% set 1 = 2 %}", "{% macro m( %}",
]

TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Says what the weather <is> & was, \"now\".", "parameters": {"type": "object", "properties": {"location": {"type": "string", "description": "City, é"}, "unit": {"type": "string", "enum": ["c", "f"]}, "days": {"type": "integer", "default": 3}}, "required": ["location"]}}},
    {"type": "function", "function": {"name": "add", "description": "Adds", "parameters": {"type": "object", "properties": {"b": {"type": "number"}, "a": {"type": "number"}, "deep": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": ["string", "null"]}}}}}, "required": ["a", "b"]}, "return": {"type": "number"}}},
]


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


SYSTEM = {"role": "system", "content": "You are <helpful> & brief.\nSecond line."}
CALL = {"id": "call00001", "type": "function", "function": {"name": "get_weather", "arguments": {"location": "Paris", "unit": "c", "n": 1.5, "ok": True, "none": None, "list": [1, "a"]}}}
TEXT_CALL = {"id": "call00001", "type": "function", "function": {"name": "get_weather", "arguments": "{\"location\": \"Paris\"}"}}
RESULT = {"role": "tool", "tool_call_id": "call00001", "name": "get_weather", "content": "{\"temp\": 20}"}

CONVERSATIONS = {
    "user": {"messages": [user("Hello")]},
    "nogen": {"messages": [user("Hello"), assistant("Hi there ")], "add_generation_prompt": False},
    "system": {"messages": [SYSTEM, user("  Hello\n")]},
    "multi": {"messages": [SYSTEM, user("a"), assistant("b"), user("c é 😀 <x>&\"'"), assistant("<think>\nhm\n</think>\n\nd"), user("e")]},
    "tools": {"messages": [SYSTEM, user("weather?")], "tools": TOOLS},
    "call": {"messages": [user("weather?"), assistant("", tool_calls=[CALL]), RESULT, assistant("It is 20."), user("thanks")], "tools": TOOLS},
    "calltext": {"messages": [SYSTEM, user("weather?"), assistant("thinking about it", tool_calls=[TEXT_CALL]), RESULT], "tools": TOOLS},
    "twice": {"messages": [user("x"), assistant(None, tool_calls=[CALL, dict(CALL, id="call00002")]), RESULT, dict(RESULT, tool_call_id="call00002")], "tools": TOOLS},
    "parts": {"messages": [user([{"type": "text", "text": "look "}, {"type": "text", "text": "here"}])]},
    "thinking": {"messages": [user("x"), assistant("y", reasoning_content="because"), user("z")], "enable_thinking": False},
    "thinkon": {"messages": [user("x"), assistant("y", reasoning_content="because"), user("z")], "enable_thinking": True, "reasoning_effort": "high"},
    "assistant-first": {"messages": [assistant("first"), user("x")]},
    "two-users": {"messages": [user("x"), user("y")]},
    "documents": {"messages": [user("x")], "documents": [{"title": "T", "text": "body", "contents": "body"}]},
    "empty": {"messages": []},
}


def main():
    body = {"names": NAMES, "constructs": [{"template": t, "text": outcome(t, NAMES)} for t in CONSTRUCTS]}
    OUT.mkdir(exist_ok=True)
    (OUT / "constructs.json").write_text(json.dumps(body, indent=1) + "\n")
    if len(sys.argv) < 2:
        return
    results = {}
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*.jinja")):
        for name, names in CONVERSATIONS.items():
            text = outcome(path.read_text(), {"bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": True, **names})
            results[f"{path.name} {name}"] = None if text is None else hashlib.sha256(text.encode()).hexdigest()[:16]
    body = {"conversations": CONVERSATIONS, "results": results}
    (OUT / "upstream.json").write_text(json.dumps(body, indent=1) + "\n")


if __name__ == "__main__":
    main()
