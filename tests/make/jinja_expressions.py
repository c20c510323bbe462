"""Expressions and small templates, for jinja_templates.py to render: each line is one."""

EXPRESSIONS = r"""
1
-7 // 2
-7 % 3
7 % -3
7 // -2
7 / 2
6 / 3
2 ** 10
2 ** -1
-2 ** 2
2 ** 3 ** 2
7.5 // 2
-7.5 % 2
7.5 % -2
1 + 2 * 3 - 4
(1 + 2) * 3
1.0
1e16
1e15
1e-5
0.1 + 0.2
1_000
0x1F + 0o17 + 0b11
1.5e3
1 / 0
1 // 0
1.5 % 0
9223372036854775807
-9223372036854775807 - 1
true + 1
true
false
none
True and None
"a" ~ 1 ~ none ~ true ~ 1.5 ~ [1, "x"]
"a" + 1
1 + "a"
"a" * 3
3 * "ab"
"a" * -1
[1, 2] * 2
[1] + [2]
[1] + (2,)
(1,) + (2, 3)
()
(1,)
(1, 2)
1, 2
[]
{}
{"a": 1, "b": [1, 2, {"c": none}]}
{"a": 1, "a": 2}
{1: "x", "1": "y"}
{1: "x"}[1]
{1: "x"}[true]
["it's", 'say "x"', "both ' and \"", "tab\t", "back\\slash", "nl\n", "\x07"]
["émigré", "你好", "😀", "\u00a0", "\u200b"]
"\u0041\x42\103\q\n"
'a' 'b' "c"
not true
not not 0
not 1 == 2
1 < 2 < 3
1 < 3 < 2
1 == 1.0
1 == true
"a" == "a"
"a" < "b"
"a" < 1
[1, 2] < [1, 3]
[1, 2] == [1, 2]
(1, 2) == [1, 2]
{"a": 1, "b": 2} == {"b": 2, "a": 1}
none == none
none == 0
undefined_name == undefined_name
undefined_name == none
1 in [1, 2]
"1" in [1, 2]
"ab" in "cabd"
1 in "abc"
"a" in {"a": 1}
"z" not in {"a": 1}
"a" in none
"a" in undefined_name
undefined_name in "abc"
1 in (1, 2)
3 in range(5)
[1] in {"a": 1}
1 and 2
0 and 2
0 or "x"
"" or none or []
1 if true else 2
1 if false else 2
1 if false
(1 if false) is defined
1 if true if false else 3 else 4
undefined_name
undefined_name.a
undefined_name["a"]
undefined_name + 1
undefined_name ~ "x"
undefined_name()
undefined_name | length
undefined_name is defined
undefined_name is undefined
undefined_name is none
undefined_name | default("d")
undefined_name | default
"" | default("d")
"" | default("d", true)
none | default("d")
undefined_name or "x"
undefined_name < 1
-undefined_name
[undefined_name]
undefined_name[0:1]
text
text.x
text[0]
text[-1]
text[100]
text[1:3]
text[::-1]
text[::2]
text[-3:]
text[:-3]
text[5:2]
text[-100:100]
text[3::-2]
text[:]
text["0"]
text | length
unicode[0] ~ unicode[2] ~ unicode[-1]
unicode[1:4]
unicode[::-1]
unicode | length
unicode.find("世")
[1, 2, 3][0]
[1, 2, 3][-1]
[1, 2, 3][9]
[1, 2, 3]["a"]
[1, 2, 3].a
[1, 2, 3][1:]
[1, 2, 3][::-1]
[1, 2, 3][:1]
(1, 2, 3)[1:]
[1, 2, 3][::0]
[1, 2, 3][none:2]
[1, 2, 3]["a":]
[1, 2, 3].0
5[0]
5.x
none.x
none[0]
none[1:]
map.a
map["a"]
map.b.c
map.missing
map.missing.x
map["missing"]
map.items
map["items"]
map["keys"] is defined
map.items()
map.items() | list
map.keys() | list
map.values() | list
map.items() | length
map.get("a")
map.get("z")
map.get("z", 5)
map.get("a", 5)
map.get()
map | length
map | list
map | items | list
map | dictsort
map | dictsort(reverse=true)
map | dictsort(false, "value")
map[1:]
map
map.pop("a")
map.pop is defined
map["pop"] is defined
map.update({"x": 1})
map.__class__
map.__class__ is defined
[1].append(2)
[1].append is defined
[1, 2, 1].count(1)
[1, 2, 1].index(2)
[1, 2, 1].index(5)
text.upper()
text.lower()
text.title()
"hello wORLD-it's".title()
"hello wORLD-it's" | title
"hELLO w" | capitalize
"hELLO".capitalize()
text | upper
text | lower
"  x  ".strip()
"  x  ".lstrip() ~ "|"
"  x  ".rstrip() ~ "|"
"xxaxx".strip("x")
"xyaxy".strip("yx")
"éaé".strip("é")
"aXb".split("X")
"a b  c ".split()
" a b  c ".split(none, 1)
"a,b,c".split(",", 1)
"a,b,c".rsplit(",", 1)
"a,b,c".split(",", maxsplit=1)
"a,b,c".split(sep=",")
"".split(",")
"".split()
"abc".split("")
"abc".startswith("a")
"abc".startswith(("x", "ab"))
"abc".startswith("b", 1)
"abc".startswith(1)
"abc".endswith("bc")
"abc".endswith("b", 0, 2)
"abc".endswith(("x",))
"abcabc".replace("b", "X")
"abcabc".replace("b", "X", 1)
"abc".replace("", "-")
"abc".replace("", "-", 2)
"".replace("", "x")
"abcabc" | replace("b", "X")
"abcabc" | replace("b", "X", 1)
"abc" | replace("b", 1)
12321 | replace(2, "x")
",".join(["a", "b"])
",".join("abc")
",".join([1])
"abc".find("c")
"abc".find("z")
"abcabc".rfind("b")
"abcabc".find("b", 2)
"abcabc".find("a", 1, 3)
"abc".index("b")
"abc".index("z")
"abab".count("ab")
"abc".count("")
"a\nb\r\nc\n".splitlines()
"a\nb\n".splitlines(true)
"a=b=c".partition("=")
"a=b=c".rpartition("=")
"abc".partition("=")
"abc".removeprefix("a")
"abc".removesuffix("bc")
"abc".removesuffix("x")
"12".isdigit()
"".isdigit()
"1a".isdigit()
"  ".isspace()
"ab".foo
"ab".foo is defined
"ab"["upper"]()
[1, 2] | length
[1, 2] | count
5 | length
none | length
[1, 2] | first
[] | first
"" | first
"ab" | first
"ab" | last
[1, 2] | last
[] | last
{} | first
5 | first
[1, "a", none, true, 1.5, undefined_name] | join("-")
[1, 2] | join
"abc" | join(",")
list_of_maps | join(", ", attribute="n")
list_of_maps | map(attribute="n") | list
list_of_maps | map(attribute="n") | join("|")
list_of_maps | map(attribute="z", default="?") | list
list_of_maps | map(attribute="z") | list
list_of_maps | map(attribute="m.k") | list
["a", "b"] | map("upper") | list
[" a "] | map("trim") | join
["aXb"] | map("replace", "X", "-") | list
[1, 2] | map("string") | list
list_of_maps | map("length") | list
[] | map("upper") | list
[1, 2, 3, 4] | select("odd") | list
[1, 2, 3, 4] | reject("odd") | list
[0, 1, "", "a", none] | select | list
[0, 1, "", "a", none] | reject | list
[1, 2, 3] | select("equalto", 2) | list
[1, 2, 3] | select("in", [1, 3]) | list
[1, 2, 3] | select(">", 1) | list
[1, 2, 3] | select("divisibleby", 3) | list
list_of_maps | selectattr("n", "equalto", 2) | list
list_of_maps | selectattr("n", "==", 2) | map(attribute="t") | first
list_of_maps | selectattr("m") | list | length
list_of_maps | selectattr("m", "defined") | list | length
list_of_maps | rejectattr("m", "defined") | list | length
list_of_maps | rejectattr("n", "gt", 1) | map(attribute="n") | list
(list_of_maps | selectattr("n", "equalto", 99)) is true
"y" if list_of_maps | selectattr("n", "equalto", 99) else "n"
"y" if list_of_maps | selectattr("n", "equalto", 99) | list else "n"
list_of_maps | selectattr("n", "equalto", 2) | length
(list_of_maps | selectattr("n", "equalto", 2))[0]
none | select | list
5 | select | list
[3, 1, 2] | sort
[3, 1, 2] | sort(reverse=true)
["b", "A", "a"] | sort
["b", "A", "a"] | sort(case_sensitive=true)
[1, "a"] | sort
list_of_maps | sort(attribute="t") | map(attribute="n") | list
[[2, 1], [1, 2]] | sort
[1, 2, 1, 3] | unique | list
["a", "A", "b"] | unique | list
["a", "A"] | unique(true) | list
[1, 2, 3] | reverse | list
"abc" | reverse
[1, 2, 3] | reverse | first
5 | reverse
[3, 1, 2] | max
[3, 1, 2] | min
[] | max
["b", "A"] | min
[1, 2, 3] | sum
[] | sum
[[1], [2]] | sum(start=[])
list_of_maps | sum(attribute="n")
[1, 2, 3, 4, 5] | batch(2) | list
[1, 2, 3] | batch(2, "x") | list
"12" | int
" 12 " | int
"12.7" | int
"x" | int
"x" | int(5)
"x" | int(default=6)
"1_0" | int
"+3" | int
"-3" | int
"1e3" | int
none | int
3.9 | int
-3.9 | int
true | int
[] | int
undefined_name | int
"1.5" | float
"x" | float
" 1e3 " | float
"inf" | float
"nan" | float
none | float
1 | float
2.5 | round
3.5 | round
2.567 | round(2)
2.5 | round(0, "ceil")
2.4 | round(0, "floor")
2.44 | round(1, "ceil")
7 | round
-5 | abs
-5.5 | abs
"a" | abs
1 | string
none | string
[1] | string
"<a&'\">" | escape
"<a>" | e
"<a>" | safe
"<a>" | safe ~ "<b>"
"<a>" | safe | length
"  a " | trim
"xax" | trim("x")
5 | trim
undefined_name | trim
none | trim
"a\nb\n\nc" | indent
"a\nb\n\nc" | indent(2, true)
"a\nb\n\nc" | indent(2, first=true, blank=true)
"a\nb" | indent("> ")
"a\nb\n" | indent(2)
"" | indent
5 | indent
map | tojson
map | tojson(indent=2)
map | tojson(indent=0)
map | tojson(separators=(",", ":"))
map | tojson(sort_keys=true)
{"b": 1, "a": {"d": 1, "c": []}} | tojson(sort_keys=true, indent=4)
[] | tojson(indent=2)
{} | tojson(indent=2)
[[], {}, [1]] | tojson(indent=2)
unicode | tojson
unicode | tojson(ensure_ascii=true)
unicode | tojson(true)
"<a>&'\"\\/\n\u0007\u007f" | tojson
[1, 1.0, 1e16, true, none, "a", (1, 2)] | tojson
"inf" | float | tojson
{1: 2, 1.5: 3, none: 4, true: 5} | tojson
undefined_name | tojson
range(2) | tojson
map.items() | tojson
range(3) | list
range(1, 4) | list
range(5, 0, -2) | list
range(0) | list
range(3)[1]
range(3) | length
range(1000000) | list
range(1, 2, 0) | list
dict(a=1, b=2)
dict({"a": 1}, b=2)
dict()
1 is number
"1" is number
true is number
1.5 is number
1 is integer
true is integer
1.5 is float
true is boolean
1 is boolean
"a" is string
none is string
{} is mapping
[] is mapping
[] is iterable
"a" is iterable
5 is iterable
none is iterable
{} is iterable
[] is sequence
"a" is sequence
{} is sequence
5 is sequence
undefined_name is sequence
undefined_name is iterable
map.items() is sequence
map.items() is iterable
(1, 2) is sequence
range(2) is sequence
none is none
0 is none
none is not none
true is true
1 is true
false is false
0 is false
"A" is upper
"a" is lower
"1" is upper
3 is odd
3 is even
4 is even
9 is divisibleby 3
9 is divisibleby(2)
1 is eq 1
1 is equalto 2
1 is ne 2
1 is lt 2
2 is gt 1
2 is ge 2
2 is le 1
"a" is in "abc"
1 is in [1, 2]
1 is not in [1, 2]
range is callable
raise_exception is defined
strftime_now is defined
text is string and text | length > 3
not text is string
text is not string or true
-1 | abs
-1 is number
1 + "2" | int
[1, 2, 3] | map("string") | join(", ") | upper
(text ~ "x") | length
text | length + 1
{"a": 1}.a + 1
{"a": {"b": [1, {"c": "d"}]}}.a.b[1].c
"%s" | length
messages[0]["role"] == "user"
messages[-1].content
messages | length
messages[0].content is string
messages[0].get("missing", "none")
"content" in messages[0]
messages[1:] | map(attribute="role") | list
messages | selectattr("role", "equalto", "user") | map(attribute="content") | join(" / ")
messages | rejectattr("role", "equalto", "user") | list | length
strftime_now("%d %b %Y")
strftime_now("%Y-%m-%d")
strftime_now("%A, %B %d, %Y")
strftime_now("%a %-d/%-m/%y day %j %%")
namespace(a=1).a
namespace({"a": 1}, b=2).b
namespace(a=1).b
namespace(a=1) is mapping
text | upper | lower | title
"a中b “don’t” ㄅx 한글y z　w" | title
"a中b “don’t” ㄅx 한글y z　w".title()
"a中b “don’t” ㄅx 한글y z　w" | upper
"X中Ab “DON’T”" | lower
"中aBC" | capitalize
"中".isdigit()
"1中".isdigit()
"中文" | int
"中文" | float
"中文" is lower
"中a" is lower
"中A" is upper
"a,b;c" | replace(",", ";") | upper
bos_token + "x"
["x"] is string
1 == "1"
"abc" | list
"a" in ["a"] and "b" not in ["a"]
("a", "b") | join
[("a", 1), ("b", 2)] | map("first") | list
"abc"[1:][0]
"x" if "y" in map else "z"
1.0 | int
1e3
100000000000000000000.0
1.0 == 1
"" is string
[[1, 2], [3]] | map("join", "-") | list
[1, [2, (3,)], {"a": (1, none)}]
"ß" ~ "é"
{"k": "é\n'"}
[1.0, 1e100, -0.0]
-0.0
0 * -1.0
5 % 3.5
2 ** 0.5
2 ** 62
1 - -1
- - 1
+1
+true
-true
[1,]
{"a": 1,}
(1, 2,)
namespace
"a" "b" ~ "c"
text.strip().upper()[0:2]
text|upper|first
map.b|tojson
map.b["c"]
map.n.x
undefined_name is callable
["a", "B", "A", "b"] | sort(reverse=true)
{"a": 1, "B": 2, "A": 3, "b": 4} | dictsort(reverse=true)
[2, 1] | sort(undefined_name)
[2, 1] | sort(1)
"a" | list | sort(reverse=none)
map | dictsort(reverse=undefined_name)
"a\nb".splitlines(undefined_name)
map.n[1:]
map.a[1:]
map[text:]
text["a":]
text[:none]
undefined_name[1:]
""".strip("\n").split("\n")

TEMPLATES = [
    "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}|{% endfor %}",
    "{% for m in messages %}{{ loop.previtem.role }}>{{ m.role }}>{{ loop.nextitem.role }};{% endfor %}",
    "{% for m in messages %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}",
    "{% for x in [] %}a{% else %}none{% endfor %}",
    "{% for x in [1] %}a{% else %}none{% endfor %}",
    "{% for x in [1,2,3,4] if x is odd %}{{ x }}{{ loop.last }}{{ loop.length }}{% else %}none{% endfor %}",
    "{% for x in [1,2,3,4] if x > 9 %}{{ x }}{% else %}none{% endfor %}",
    "{% set ns = namespace(f=false) %}{% for x in [1,2,3,4] if not ns.f %}{{ x }}{% if x == 2 %}{% set ns.f = true %}{% endif %}{% endfor %}",
    "{% set ns = namespace(f=false) %}{% for x in [1,2,3,4] if not ns.f %}{{ x }}{{ loop.last }}{% if x == 2 %}{% set ns.f = true %}{% endif %}{% endfor %}",
    "{% for a, b in map.items() %}{{ a }}={{ b }};{% endfor %}",
    "{% for a, b in map | items %}{{ a }};{% endfor %}",
    "{% for (a, b) in [(1, 2), (3, 4)] %}{{ a }}-{{ b }};{% endfor %}",
    "{% for a, b in [1] %}{{ a }}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{{ a }}{% endfor %}",
    "{% for k in map %}{{ k }}{% endfor %}",
    "{% for c in unicode %}[{{ c }}]{% endfor %}",
    "{% for c in 5 %}x{% endfor %}",
    "{% for c in none %}x{% endfor %}",
    "{% for c in undefined_name %}x{% endfor %}",
    "{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in [1,2] %}{% for j in [1,2,3] %}{% if j == 2 %}{% break %}{% endif %}{{ i }}{{ j }}{{ loop.index }} {% endfor %}{{ loop.index }}{% endfor %}",
    "{% for i in range(4) %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% set x = 1 %}{% for i in [1,2] %}{{ x }}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}",
    "{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}",
    "{% for i in [1,2] %}{{ y }}{% set y = i %}{{ y }}{% endfor %}{{ y }}",
    "{% for x in [1] %}{% endfor %}{{ x }}",
    "{% set x = 5 %}{% for x in [1] %}{{ x }}{% endfor %}{{ x }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% set a, b = [1, 2] %}{{ a }}{{ b }}",
    "{% set a, b = 'xy' %}{{ b }}{{ a }}",
    "{% set a, b = 1 %}{{ a }}",
    "{% set x %}a{{ 1 }}b{% set inner = 1 %}{% endset %}{{ x }}{{ inner }}{{ x | length }}",
    "{% set ns = namespace() %}{% set ns.x = 1 %}{{ ns.x }}{{ ns.y }}",
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
    "{% set ns.x = 1 %}",
    "{% set m = {} %}{% set m.x = 1 %}",
    "{% macro f(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }}|{{ f(1, 3) }}|{{ f(1, c=4) }}|{{ f(b=1, a=2) }}|{{ f() }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(z=2) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, a=2) }}",
    "{% macro f(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% macro f() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ f() }}{% set x = 2 %}{{ f() }}",
    "{% macro f() %}{% set x = 9 %}{{ x }}{% endmacro %}{% set x = 1 %}{{ f() }}{{ x }}",
    "{% macro f() %}{{ loop is defined }}{% endmacro %}{% for i in [1] %}{{ f() }}{% endfor %}",
    "{% macro f(x) %}{{ x }}{% endmacro %}{% for i in [1, 2] %}{{ f(i) }}{% endfor %}",
    "{% macro f() %}  a  {% endmacro %}[{{ f() | trim }}]",
    "{% macro f() -%} a {%- endmacro %}[{{ f() }}]{{ f() ~ 'x' }}{{ f() + 'y' }}",
    "{{ f() }}{% macro f() %}x{% endmacro %}",
    "{% if true %}{% macro f() %}x{% endmacro %}{% endif %}{{ f() }}",
    "{% if 0 %}a{% elif '' %}b{% elif 1 %}c{% else %}d{% endif %}",
    "{% if none %}a{% else %}d{% endif %}",
    "{% if [] or {} or 0.0 %}a{% endif %}.",
    "{% generation %}a{% set q = 1 %}{{ q }}{% endgeneration %}{{ q }}",
    "{% for m in messages %}{% generation %}{{ m.role }}{{ loop.index }}{% endgeneration %}{% endfor %}",
    "{% raw %}{{ x }}{% y %}{# z #}{% endraw %}",
    "  {% raw %}\n a {% endraw %}\n b",
    "a{%- raw -%}  x  {%- endraw -%}  b",
    "{# c #}a{#- b -#}  c  {#+ d +#}  e",
    "a\n  {# c #}\nb\n  {#- c -#}\nd",
    "  {% if true %}\n  a\n  {% endif %}\n  b",
    "  {%- if true -%}\n  a\n  {%- endif -%}\n  b",
    "  {%+ if true +%}\n  a\n  {%+ endif +%}\n  b",
    "x  {% if true %} a {% endif %} b",
    "  {{ 1 }}  \n  {{- 2 -}}  \n {{+ 3 }}\n",
    "a\r\nb\rc\r\n",
    "a\n\n",
    "\n{% if true %}\n\n a\n{% endif %}\n\n",
    "{% set x = 'a\r\nb' %}{{ x }}{{ x | length }}",
    "{{ '{{' }}{{ '%}' }}{{ {'a': {'b': 1}}}}",
    "{{ {'a': 1}}}",
    "{% set x = {'a': {'b': 1}} %}{{ x.a.b }}",
    "{{ raise_exception('no: ' ~ 1) }}",
    "{% if false %}{{ raise_exception('no') }}{% endif %}ok",
    "{% if custom is defined %}{% set tools = custom %}{% endif %}{{ tools is none }}{{ tools }}",
    "{% if false %}{% set text = 1 %}{% endif %}{{ text }}",
    "{% for m in messages %}{% if false %}{% set text = 1 %}{% endif %}{{ text }}{% endfor %}",
    "{% for m in messages %}{% if m.role == 'user' %}{% set text = 'u' %}{% else %}{% set text = 'e' %}{% endif %}{{ text }}{% endfor %}{{ text }}",
    "{% set text = text ~ '!' %}{{ text }}",
    "{% for m in messages %}{% set text = text ~ '!' %}{{ text }}{% endfor %}",
    "{% set s = list_of_maps | selectattr('n') %}{% for x in s %}{{ x.n }}{% endfor %}-{% for x in s %}{{ x.n }}{% endfor %}",
    "{% set s = [1, 2, 3] | map('string') %}{{ s | first }}{{ s | first }}{{ s | join }}",
    "{% set s = [1, 2, 3, 4] | select %}{{ 2 in s }}{{ s | list }}",
    "{% for k, v in map.items() %}{{ loop.index }}{{ k }}{% if not loop.last %},{% endif %}{% endfor %}",
    "{% for m in messages %}{% for m in [1] %}{{ m }}{% endfor %}{{ m.role }}{% endfor %}",
    "{% for m in messages[::-1] %}{{ m.role }}{% endfor %}",
    "{% for m in messages %}{% if loop.index0 > 0 and messages[loop.index0 - 1].role == 'user' %}x{% endif %}{% endfor %}",
    "{% for m in messages %}{% set loop_messages = messages[loop.index0:] %}{{ loop_messages | length }}{% endfor %}",
    "{% set x = none %}{{ x }}{% set x = undefined_name %}{{ x is defined }}",
    "{{ [x for x in y] }}",
    "{% set x = 1 if y is defined else 2 %}{{ x }}",
    "{{ 'a' is string if true else 'b' }}",
    "{% if messages[0]['role'] == 'system' %}s{% else %}n{% endif %}",
    "{{ a.b.c }}", "{{ map.a.b.c }}", "{{ (1, 2) | list }}",
    "{%- for message in messages %}\n{{- '<|' + message['role'] + '|>\n' + message['content'] | trim + '</s>' }}\n{%- endfor %}\n",
    "{% set content = 'x' %}{% set content %}{{ content }}y{% endset %}{{ content }}",
    "{{ loop }}", "{{ loop.index }}", "{% for i in [1] %}{% endfor %}{{ loop is defined }}",
    "{{ namespace(a=1).a }}{{ range(3) | last }}",
    "{% set f = range %}{{ f(2) | list }}",
    "{% set range = 5 %}{{ range }}",
    "{{ '\\n' }}{{ '\\\\n' }}{{ \"\\\"\" }}{{ '\\'' }}",
    "{{- 'a' -}}\n\n{{- 'b' }}\n\n{{ 'c' }}",
    "{% if a %}\n{% else %}\nx\n{% endif %}\ny",
    "{% set _x = 1 %}{{ _x }}", "{%if true%}a{%endif%}", "{%-if true-%} a {%-endif-%}",
    "{% for i in range(3) %}\n  {{ i }}\n{% endfor %}\n",
    "    {# a #}    {# b #}\nx", "{# a #}{# b #}\nx", "{% if true %}{% if true %}\n\nx{% endif %}{% endif %}",
    "{{ true }}{{ True }}{{ none }}{{ None }}{{ false }}{{ False }}",
    "{% for x in [1, 2, 3] | reverse %}{{ x }}{{ loop.last }}{% endfor %}",
    "{% set x = [1, 2] %}{% set y = x + [3] %}{{ x }}{{ y }}",
    "{% for x in 'ab', 'cd' %}{{ x }}{% endfor %}",
    "{{ 'a' ~ ('b' if false) ~ 'c' }}",
    "{% set d = {'a': 1} %}{{ d.a }}{{ d['a'] }}{{ d.b is defined }}{{ d['b'] is defined }}{{ 'a' in d }}",
    "{{ messages[0].content.split(' ')[-1].strip('.') }}",
    "{% set c = 'a</think>b</think>c' %}{{ c.split('</think>')[-1].lstrip('\\n') }}|{{ c.split('</think>')[0].rstrip('\\n').split('<think>')[-1] }}",
]
