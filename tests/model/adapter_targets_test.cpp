// target_modules that fit no module of a model: an expression or a name that says nothing is told, not passed over.

#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "lora/model/decoder/adapter.hpp"
#include "lora/model/description/config.hpp"
#include "lora/model/description/module_pattern.hpp"
#include "support/message_of.hpp"
#include "support/temp_folder.hpp"

namespace adapter_targets_test {

using namespace lora;
using test::holds;

namespace {

const std::filesystem::path data = LORA_FIXTURES;

/// What opening and checking a saved adapter with other target_modules says.
std::string refusal(const io::Json& targets) {
  const test::TempFolder folder;
  const auto from = data / "adapters" / "regex";
  auto json = io::read_json(from / "adapter_config.json");
  json["target_modules"] = targets;
  io::write_json(folder / "adapter_config.json", json);
  io::copy_file(from / "adapter_model.safetensors", folder / "adapter_model.safetensors");
  const auto where = data / "golden" / "llama" / "config.json";
  const auto config = model::parse_config(io::read_json(where), where.native());
  return test::message_of([&] { model::check_adapter(model::open_adapter(folder.path()), config); });
}

bool fits(const char* expression, const char* name) {
  const model::ModulePattern pattern(expression);
  CAPTURE(expression);
  REQUIRE(pattern.known());
  return pattern.matches(name);
}

}  // namespace

TEST_CASE("adapter targets: an expression or a whole name that fits no module is named, with names that exist") {
  for (const char* expression :
       {".*\\.attn\\.(q|o)_proj", "layers\\.[12]\\.self_attn\\.q_proj", ".*h\\.\\d+\\.q_proj"}) {
    CAPTURE(expression);
    const std::string text = refusal(expression);
    CHECK(
        holds(text, concat("adapter_config.json: \"target_modules\" has \"", expression, "\", which fits no module")));
    CHECK(holds(text, "model.layers.0.self_attn.q_proj, model.layers.0.mlp.gate_proj and so on up to model.layers."));
  }
  CHECK(holds(refusal({"q_proj", "model.layers.77.self_attn.q_proj"}),
              "\"target_modules\" has \"model.layers.77.self_attn.q_proj\", which fits no module"));
  CHECK(holds(refusal({"mlp.q_proj"}), "\"target_modules\" has \"mlp.q_proj\", which fits no module"));
  CHECK_FALSE(holds(refusal({"self_attn.q_proj"}), "fits no module"));
}

TEST_CASE("adapter targets: expressions that fit, or that can't be judged here, are taken") {
  for (const char* expression :
       {".*layers\\.[12]\\.(self_attn\\.(q|o)_proj|mlp\\.down_proj)",
        ".*layers.[12].(self_attn.[qo]_proj|mlp.down_proj)", ".*(?:q|o|down)_proj", "^(?!.*visual).*(q|o|down)_proj",
        "(?i).*Q_PROJ", ".*\\.\\w{4}_?.*", "[\\w.]+q_proj"}) {
    CAPTURE(expression);
    CHECK(refusal(expression) == "nothing was thrown");
  }
}

TEST_CASE("adapter targets: an expression is compared with the whole name, as Python's fullmatch does") {
  CHECK(fits("a", "a"));
  CHECK_FALSE(fits("a", "ab"));
  CHECK_FALSE(fits("a|b", "xb"));
  CHECK(fits("a|xb", "xb"));
  CHECK(fits("a+?b*?", "aab"));
  CHECK(fits("a\\.b", "a.b"));
  CHECK_FALSE(fits("a\\.b", "axb"));
  CHECK(fits("\\d\\w\\d", "1_2"));
  CHECK_FALSE(fits("\\d", "d"));
  CHECK(fits("^[^.]+$", "ab"));
  CHECK_FALSE(fits("^[^.]+$", "a.b"));
  for (const char* expression :
       {"a{2}", "(?=a)a", "(?P<x>a)", "(a)\\1", "\\Aa", "[\\d]", "[[:alpha:]]", "[]a]", "[^]a]", "a\\", "("})
    CHECK_FALSE(model::ModulePattern(expression).known());
  CHECK_FALSE(model::ModulePattern(std::string(1001, 'a')).known());
  CHECK(model::ModulePattern(std::string(1000, 'a')).known());
}

}  // namespace adapter_targets_test
