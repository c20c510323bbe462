#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/target.hpp"
#include "lora/data/chat/own_template.hpp"
#include "lora/jinja/template.hpp"
#include "lora/tokenizer/unicode.hpp"

namespace fuzz_jinja {

using namespace lora;

/// The text of a chat template, rendered with a conversation, and its answers.
LORA_FUZZ_TARGET(jinja, data, size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  static const io::Json messages = io::parse_json(
      R"([{"role": "system", "content": "Be kind."}, {"role": "user", "content": " Hi \u4f60 "},
          {"role": "assistant", "content": "<think>\nx</think>\n\ny", "reasoning_content": "z", "tool_calls":
           [{"type": "function", "function": {"name": "f", "arguments": {"a": [1, 2.5, null, true]}}}]},
          {"role": "tool", "content": "7"}, {"role": "assistant", "content": "Bye"}])",
      "messages");
  static const io::Json yes = true, eos = "</s>";
  const jinja::Limits limits = {.steps = 20'000, .text = 1 << 16, .memory = 1 << 20, .depth = 100};
  try {
    const jinja::Template chat(text, "t");
    const std::string written = chat.render(
        {{"messages", &messages}, {"tools", &messages}, {"add_generation_prompt", &yes}, {"eos_token", &eos}},
        "2024-02-29", limits);
    if (written.size() > limits.text || tokenizer::unicode::find_invalid_utf8(written) != written.npos)
      __builtin_trap();
  } catch (const Error&) {}
  if (size > 512) return;  // rendered several times, with the limits of a run
  try {
    const data::detail::OwnTemplate own(text, {"<s>", "</s>", "", {"<s>", "</s>"}});
    const std::vector<data::Message> talk = {{"user", "Q"}, {"assistant", "A"}, {"user", "R"}, {"assistant", "B"}};
    const data::Rendering rendering = own.render(talk, {});
    std::size_t end = 0;
    for (const data::AnswerSpan& answer : rendering.answers) {
      if (answer.begin < end || answer.end < answer.begin || answer.end > rendering.text.size()) __builtin_trap();
      end = answer.end;
    }
    if (rendering.answers.size() != 2) __builtin_trap();
  } catch (const Error&) {}
}

}  // namespace fuzz_jinja
