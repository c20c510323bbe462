#include "lora/jinja/limits.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include "lora/jinja/template.hpp"
#include "support/effort.hpp"

namespace jinja_limits_test {

using namespace lora;
using jinja::Limits;
using jinja::Template;

namespace {

std::string repeated(std::string_view part, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += part;
  return text;
}

/// What is written, or the error.
std::string outcome(const std::string& text, const Limits& limits = {}) {
  try {
    return Template(text, "t").render({}, "2024-01-01", limits);
  } catch (const FormatError& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("jinja limits: a template that goes on and on ends by its steps") {
  Limits limits;
  limits.steps = test::effort(limits.steps, limits.steps / 25, "jinja limits: 24 of 25 steps until a rendering ends");
  const std::string too_many = "rendering takes more than " + std::to_string(limits.steps) + " steps";
  const std::string loops = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";
  CHECK(outcome(loops, limits) == "t:1:40: " + too_many);
  const std::string text = "{% for a in range(100) %}{{ a }}{% endfor %}";
  CHECK(outcome(text, {.steps = 200}) == "t:1:26: rendering takes more than 200 steps");
  CHECK(outcome(text, {.steps = 2000}).ends_with("9899"));
  // Work on long texts counts, and so do comparisons inside of a filter.
  const std::string long_text = "{% set a = 'a' * 1000000 %}{% for i in range(9999) %}";
  CHECK(outcome(long_text + "{{ a == a ~ 'b' }}{{ a.find('b') }}{% endfor %}", limits).ends_with(too_many));
  std::string names;
  for (int i = 0; i < 50000; ++i) names += "{%set a" + std::to_string(i) + "=0%}";
  CHECK(outcome("{% for a in [1] %}" + names + "{% endfor %}", limits).ends_with(too_many));
  CHECK(outcome("{{ range(90000) | list | unique | list | length }}", limits) == "t:1:26: " + too_many);
}

TEST_CASE("jinja limits: texts, the output and all values have a size") {
  const std::string too_long = "a text has more than 16.0 MiB";
  CHECK(outcome("{{ 'a' * 1000000000 }}") == "t:1:8: " + too_long);
  CHECK(outcome("{{ ('a' * 16777216) | length }}") == "16777216");
  CHECK(outcome("{{ ('a' * 16777217) | length }}") == "t:1:9: " + too_long);
  CHECK(outcome("{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}")
            .ends_with(too_long));
  CHECK(outcome("{% set a = 'a' * 9000000 %}{{ a }}{{ a }}") == "t:1:35: " + too_long);
  constexpr auto left_out = "jinja limits: all but two ways to a text that is too long, and lists of all characters";
  for (const std::string_view more :
       {"{{ a | replace('a', 'bcdef') | length }}", "{{ ('\\n' * 9) | indent(a, blank=true) }}",
        "{{ [a, a, a] | join(a) }}", "{{ a.join('abcde') }}", "{{ [a, a, a, a] | tojson }}"}) {
    if (more.find("join") == more.npos && !test::effort(true, false, left_out)) continue;
    CHECK_MESSAGE(
        outcome("{% set a = 'a' * 5000000 %}" + std::string(more)).find("has more than 16.0 MiB") != std::string::npos,
        more);
  }
  const std::string too_much = "the values take more than 128.0 MiB";
  CHECK(outcome("{{ [1] * 1000000000 }}") == "t:1:8: " + too_much);
  CHECK(outcome("{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}")
            .ends_with(too_much));
  CHECK(outcome("{% set ns = namespace() %}{% set s = 'a' * 9000000 %}{% for i in range(99) %}{% set a = s ~ i %}{% "
                "set ns.x = [ns.x, a] %}"
                "{% endfor %}")
            .ends_with(too_much));
  if (test::effort(true, false, left_out)) CHECK(outcome("{{ ('a' * 4000000) | list | length }}").ends_with(too_much));
  // What is gone does not count.
  CHECK(outcome("{% set s = 'a' * 8000000 %}{% for i in range(18) %}{% set a = s ~ i %}{% endfor %}ok") == "ok");
  CHECK(outcome("{{ range(1000000) }}") == "t:1:4: a range has more than 100000 numbers");
}

TEST_CASE("jinja limits: macros and values are not nested without end") {
  CHECK(outcome("{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}").ends_with("nested deeper than 400 levels"));
  CHECK(outcome("{% macro f(n) %}{{ g(n) }}{% endmacro %}{% macro g(n) %}{% if n %}{{ f(n) }}{% endif %}{% endmacro "
                "%}{{ f(1) }}")
            .ends_with("nested deeper than 400 levels"));
  CHECK(outcome("{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(9) }}") ==
        "9876543210");
  const std::string nest =
      "{% set ns = namespace(x=[]) %}{% for i in range(N) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}";
  std::string deep = nest, fine = nest;
  deep.replace(deep.find('N'), 1, "90000");
  fine.replace(fine.find('N'), 1, "249");
  CHECK(outcome(deep).ends_with("lists and mappings are nested deeper than 250 levels"));
  CHECK(outcome(fine) == repeated("[", 250) + repeated("]", 250));
  const std::string functions =
      "a function in a list, mapping or namespace is not supported; it can be called, or have a name";
  CHECK(outcome(
            "{% set ns = namespace(x=[]) %}{% for i in range(600) %}{% for j in range(600) %}{% set ns.x = [ns.x.copy] "
            "%}{% endfor %}{% endfor %}")
            .ends_with(functions));
  CHECK(outcome("{% set ns = namespace() %}{% for a in [1] %}{% set ns.x = loop.cycle %}{% endfor %}")
            .ends_with(functions));
  CHECK(outcome("{{ {'a': 'b'.upper} }}").ends_with(functions));
  CHECK(outcome("{% set ns = namespace() %}{% set ns.x = ns %}") ==
        "t:1:34: a namespace in a list, mapping or namespace is not supported");
  CHECK(outcome("{% set ns = namespace() %}{{ {'a': ns} }}") ==
        "t:1:31: a namespace in a list, mapping or namespace is not supported");
}

TEST_CASE("jinja limits: a template's text is not nested without end, nor too long") {
  const std::string nested = "nested deeper than 150 levels";
  CHECK(outcome("{{ " + repeated("(", 99999) + "1" + repeated(")", 99999) + " }}").ends_with(nested));
  CHECK(outcome("{{ " + repeated("[", 99999) + repeated("]", 99999) + " }}").ends_with(nested));
  CHECK(outcome("{{ " + repeated("not ", 99999) + "1 }}").ends_with(nested));
  CHECK(outcome("{{ " + repeated("- ", 99999) + "1 }}").ends_with(nested));
  CHECK(outcome("{{ 1" + repeated(" + 1", 99999) + " }}").ends_with(nested));
  CHECK(outcome("{{ 1" + repeated(" * 1", 99999) + " }}").ends_with(nested));
  CHECK(outcome("{{ 1" + repeated(" ** 1", 99999) + " }}").ends_with(nested));
  CHECK(outcome("{{ a" + repeated(".a", 99999) + " }}").ends_with(nested));
  CHECK(outcome("{{ a" + repeated("[0]", 99999) + " }}").ends_with(nested));
  CHECK(outcome("{{ a" + repeated("()", 99999) + " }}").ends_with(nested));
  CHECK(outcome("{{ a" + repeated("|e", 99999) + " }}").ends_with(nested));
  CHECK(outcome("{{ a" + repeated(" if 1 else 2", 9999) + " }}").ends_with(nested));
  CHECK(outcome("{{ 1" + repeated(" if 1", 99999) + " }}").ends_with(nested));
  CHECK(outcome(repeated("{% if 1 %}", 99999)).ends_with(nested));
  CHECK(outcome(repeated("{% for a in b %}", 9999)).ends_with(nested));
  CHECK(outcome("{{ 1" + repeated(" + 1", 100) + " }}") == "101");
  CHECK(outcome("{{ 'x'" + repeated(" ~ 'x'", 9999) + " }}").size() == 10000);
  CHECK(outcome("{{ 1" + repeated(" and 1", 9999) + " }}") == "1");
  CHECK(outcome(repeated("x", (1 << 20) + 1)) == "t: it has 1048577 bytes; expected at most 1048576");
  CHECK(outcome(repeated("x", 1 << 20)).size() == 1 << 20);
  CHECK(outcome("a\xFF") == "t: it is no UTF-8");
}

TEST_CASE("jinja limits: errors name line and column, and what was found") {
  CHECK(outcome("a\n  {{ 1 +* 2 }}") == "t:2:9: found *; expected an expression");
  CHECK(outcome("é{{ é }}") == "t:1:5: found é, which begins no expression");
  CHECK(outcome("{{ 'abc }}") == "t:1:4: the text has no end; expected '");
  CHECK(outcome("x{# a") == "t:1:2: the comment has no end; expected #}");
  CHECK(outcome("{% raw %}x") == "t:1:1: raw has no end; expected endraw");
  CHECK(outcome("{{ 1") == "t:1:1: the tag has no end; expected }}");
  CHECK(outcome("{% if 1 %}\nx") == "t:2:2: found the end of the template; expected the block endif");
  CHECK(outcome("{% endif %}") ==
        "t:1:4: found the block endif; supported are set, if, for, macro, generation, break, continue and raw");
  CHECK(outcome("{{ (1] }}") == "t:1:6: found ]; expected )");
  CHECK(outcome("{{ 1 | nosuch }}") == "t:1:8: the filter nosuch is not supported");
  CHECK(outcome("{{ 1 | trim(1, 2) }}") == "t:1:8: trim takes at most 1 argument");
  CHECK(outcome("{{ 1 | replace(1) }}") == "t:1:8: replace takes its argument new once");
  CHECK(outcome("{{ 1 | tojson(nosuch=1) }}") == "t:1:8: tojson takes no argument nosuch");
  CHECK(outcome("{{ [] | map('nosuch') }}") == "t:1:13: the filter nosuch is not supported");
  CHECK(outcome("{{ [] | select('nosuch') }}") == "t:1:16: the test nosuch is not supported");
  CHECK(outcome("{{ 1 is nosuch }}") == "t:1:9: the test nosuch is not supported");
  CHECK(outcome("{{ 'a'.encode() }}") == "t:1:8: the method encode is not supported");
  CHECK(outcome("{% for a in b recursive %}{% endfor %}") == "t:1:15: recursive loops are not supported");
  CHECK(outcome("{% break %}") == "t:1:4: found break outside of a loop");
  CHECK(outcome("{% set loop = 1 %}") == "t:1:8: loop can't be assigned to");
  CHECK(outcome("{{ 'a b'.split(none, -9223372036854775807 - 1) }}") == "['a', 'b']");
  CHECK(outcome("{{ '\x7F' | tojson(ensure_ascii=true) }}") == R"("\u007f")");
  CHECK(outcome("{{ ['a\U000E0101'] }}") == "['a\U000E0101']");
  CHECK(outcome("{{ '+-5' | int }}{{ '+-5' | float }}") == "00.0");
  CHECK(outcome("{% macro m(a=b, b=2) %}{{ a is defined }}{% endmacro %}{{ m() }}") == "False");
  CHECK(outcome("{% for a in [1] %}{{ loop is iterable }}{% endfor %}") == "True");
  CHECK(outcome("{{ cycler(1) }}") == "t:1:4: cycler is not supported");
  CHECK(outcome("{{ f(*a) }}") == "t:1:6: found *; expected an expression");
  CHECK(outcome("{{ 99999999999999999999 }}") == "t:1:4: the number 99999999999999999999; expected one of 64 bits");
  CHECK(outcome("{{ 9223372036854775807 + 1 }}") == "t:1:24: integers beyond 64 bits are not supported");
  CHECK(outcome("{{ 2 ** 63 }}") == "t:1:6: integers beyond 64 bits are not supported");
  CHECK(outcome("{{ 'é'.upper() }}") == "t:1:8: upper and lower case of letters beyond ASCII are not supported");
  CHECK(outcome("{{ 'a' % 1 }}") == "t:1:8: formatting a text by % is not supported");
  CHECK(outcome("{{ '<' + ('a' | safe) }}") ==
        "t:1:8: what safe and escape give can be written, or joined with ~, but not used with +");
  CHECK(outcome("{{ raise_exception('no \x1B') }}") == "t:1:4: the template refuses this: no \\x1B");
  CHECK(outcome("{{ strftime_now('%H:%M') }}").starts_with("t:1:4: strftime_now with %H; "));
  CHECK(outcome("{% if x %}\n{{ a.b }}\n{% endif %}{{ a.b }}") == "t:3:17: the field b of an undefined value");
  CHECK(outcome("{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}") == "t:1:34: the macro f takes at most 1 arguments");
  CHECK(outcome("{% for a in [1] %}{% macro f() %}{% endmacro %}{% endfor %}") ==
        "t:1:22: a macro inside of a loop or another block but if is not supported");
}

}  // namespace jinja_limits_test
