#include "lora/jinja/template.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lora/core/hash.hpp"
#include "lora/io/formats/json.hpp"
#include "support/effort.hpp"
#include "support/tokenizer_files.hpp"

namespace jinja_template_test {

using namespace lora;
using jinja::Template;
using jinja::Variable;

namespace {

/// The values of a packed file of JSON lines that tests/make/jinja_templates.py wrote.
std::vector<io::Json> lines_of(const std::string& name) {
  const std::string text = test::unpacked(LORA_FIXTURES "/jinja/" + name + ".jsonl.z");
  std::vector<io::Json> values;
  for (std::size_t begin = 0, end; begin < text.size(); begin = end + 1) {
    end = text.find('\n', begin);
    values.push_back(io::parse_json(std::string_view(text).substr(begin, end - begin), name));
  }
  return values;
}

std::vector<Variable> variables_of(const io::Json& fields) {
  std::vector<Variable> variables;
  for (const auto& [name, value] : io::json_fields(fields)) variables.push_back({name, &value});
  return variables;
}

std::string hash_of(const std::string& text) {
  char hash[17];
  std::snprintf(hash, sizeof hash, "%016llx", static_cast<unsigned long long>(text_hash(text)));
  return hash;
}

}  // namespace

TEST_CASE("jinja: expressions and small templates write what jinja2 does, or are refused where it raises an error") {
  const io::Json values = lines_of("variables")[0];
  const std::vector<Variable> variables = variables_of(values);
  const std::vector<io::Json> rows = lines_of("expressions");
  CHECK(rows.size() > 600);
  std::size_t errors = 0;
  for (const io::Json& row : rows) {
    const auto text = row["template"].get<std::string>();
    CAPTURE(text);
    const auto render = [&] { return Template(text, "t").render(variables, "2024-02-09"); };
    if (row.contains("text")) {
      CHECK(render() == row["text"].get<std::string>());
    } else {
      ++errors;
      CHECK_THROWS_AS(render(), FormatError);
    }
  }
  CHECK(errors > 60);
}

TEST_CASE("jinja: templates with the constructs of published ones render random conversations as transformers does") {
  constexpr std::size_t block = 50;
  const std::vector<io::Json> published = lines_of("published"), conversations = lines_of("conversations"),
                              expected = lines_of("renderings");
  REQUIRE(published.size() >= 50);
  REQUIRE(conversations.size() == 2000);
  REQUIRE(expected.size() == published.size());
  const io::Json bos = "<s>", eos = "</s>", none;
  const auto stride = test::effort<std::size_t>(1, 10, "jinja: nine of ten blocks of conversations");
  for (std::size_t t = 0; t < published.size(); ++t) {
    const auto name = published[t]["name"].get<std::string>();
    CAPTURE(name);
    REQUIRE(expected[t]["name"].get<std::string>() == name);
    const Template chat(published[t]["template"].get<std::string>(), name);
    std::size_t errors = 0;
    for (std::size_t begin = 0; begin < conversations.size(); begin += block * stride) {
      CAPTURE(begin);
      std::string joined;
      for (std::size_t i = begin; i < begin + block; ++i) {
        const io::Json& record = conversations[i];
        const std::vector<Variable> variables = {{"messages", &record["messages"]},
                                                 {"tools", &record["tools"]},
                                                 {"documents", &none},
                                                 {"bos_token", &bos},
                                                 {"eos_token", &eos},
                                                 {"add_generation_prompt", &record["add_generation_prompt"]},
                                                 {"enable_thinking", &record["enable_thinking"]}};
        std::string text = "\x01";
        try {
          text = chat.render(variables, record["date"].get<std::string>());
        } catch (const FormatError&) {
          ++errors;
        }
        if (i < expected[t]["texts"].size() && expected[t]["texts"][i].is_string())
          CHECK(text == expected[t]["texts"][i].get<std::string>());
        joined += text;
      }
      CHECK(hash_of(joined) == expected[t]["blocks"][begin / block].get<std::string>());
    }
    if (stride == 1) CHECK(errors == expected[t]["errors"].get<std::size_t>());
  }
}

}  // namespace jinja_template_test
