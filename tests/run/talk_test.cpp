#include "lora/run/talk.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "support/byte_tokenizer.hpp"
#include "support/message_of.hpp"
#include "support/random_model.hpp"
#include "support/temp_folder.hpp"

namespace talk_test {

using namespace lora;
using run::Talk;
using run::talk_of;
using test::holds;
using Ids = std::vector<std::int32_t>;

namespace {

/// A base that stops at the id 5, with a template of its own.
struct Base {
  test::TempFolder temp;

  Base() {
    test::RandomModel shape;
    shape.vocabulary = 260;
    shape.more = {{"eos_token_id", 5}};
    test::write_random_model(temp / "base", shape);
    io::write_file(temp / "base" / "tokenizer.json", test::byte_tokenizer_json());
    io::write_json(temp / "base" / "tokenizer_config.json", {{"chat_template", "own"}, {"eos_token", "a"}});
  }
  model::Source source() const { return model::Source::open(temp / "base"); }
  tokenizer::Tokenizer tokenizer() const { return tokenizer::Tokenizer::from_folder(temp / "base"); }
};

}  // namespace

TEST_CASE("talk: what the base's files say already changes nothing of them") {
  const Base base;
  const auto source = base.source();
  const auto tokenizer = base.tokenizer();
  for (const tokenizer::ChatFiles& taught :
       {tokenizer::ChatFiles{}, tokenizer::ChatFiles{"own", ""}, tokenizer::ChatFiles{"own", "\x05"},
        tokenizer::ChatFiles{"", "no single token"}}) {
    const Talk talk = talk_of(source, &tokenizer, taught, "chatml");
    CHECK(talk.changes.chat_template.empty());
    CHECK(talk.changes.eos_token.empty());
    CHECK(talk.stop_ids.empty());
    CHECK(talk.template_name == "chatml");
    CHECK(run::stopping_text(talk).empty());
  }
  const Talk none = talk_of(source, nullptr, {"other", "<|im_end|>"});
  CHECK(none.changes.chat_template.empty());
  CHECK(none.stop_ids.empty());
  io::create_folders(base.temp / "out");
  run::write_tokenizer(none, base.temp / "out");
  CHECK(std::filesystem::is_empty(base.temp / "out"));
}

TEST_CASE("talk: a learned end comes first where the model stops, and the base's own stay") {
  const Base base;
  const auto source = base.source();
  const auto tokenizer = base.tokenizer();
  const Talk talk = talk_of(source, &tokenizer, {"other", "<|im_end|>"});
  CHECK(talk.stop_ids == Ids{257, 5});
  CHECK(run::stopping_text(talk) ==
        "\nAnswers end with `<|im_end|>`, the id 257, where the base's own generation_config does not stop. `lora` "
        "does; others must be told:\n\n```python\nmodel.generate(**inputs, eos_token_id=[257, 5])  # transformers\n"
        "SamplingParams(stop_token_ids=[257, 5])  # vLLM\n```\n");
  run::write_tokenizer(talk, base.temp / "out");
  const io::Json settings = io::read_json(base.temp / "out" / "tokenizer_config.json");
  CHECK(settings == io::Json{{"chat_template", "other"}, {"eos_token", "<|im_end|>"}});
  CHECK(io::read_file(base.temp / "out" / "chat_template.jinja") == "other");
  const auto written = tokenizer::Tokenizer::from_folder(base.temp / "out");
  CHECK(written.chat_template() == "other");
  CHECK(written.eos() == 257);

  io::write_json(base.temp / "base" / "generation_config.json", {{"eos_token_id", {6, 257}}});
  CHECK(talk_of(source, &tokenizer, {"other", "<|im_end|>"}).stop_ids.empty());
}

}  // namespace talk_test
