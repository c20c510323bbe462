#pragma once

#include "lora/core/config.hpp"
#include "lora/run/talk.hpp"

namespace lora::run {

LORA_INLINE Talk talk_of(const model::Source& source, const tokenizer::Tokenizer* tokenizer,
                         const tokenizer::ChatFiles& taught, std::string template_name) {
  Talk talk{tokenizer, std::move(template_name)};
  if (tokenizer == nullptr) return talk;
  if (taught.chat_template != tokenizer->chat_template()) talk.changes.chat_template = taught.chat_template;
  const auto ids = model::stop_ids_with(source, model::id_of_end(*tokenizer, taught.eos_token));
  if (ids == model::stop_ids_of(source)) return talk;
  talk.stop_ids = ids;
  talk.changes.eos_token = taught.eos_token;
  return talk;
}

LORA_INLINE void write_tokenizer(const Talk& talk, const io::Path& folder) {
  if (talk.tokenizer == nullptr) return;
  talk.tokenizer->save(folder);
  tokenizer::write_chat_files(folder, talk.changes);
}

LORA_INLINE std::string stopping_text(const Talk& talk) {
  if (talk.stop_ids.empty()) return {};
  std::string ids;
  for (const std::int32_t id : talk.stop_ids) ids += concat(ids.empty() ? "" : ", ", id);
  return concat("\nAnswers end with `", talk.changes.eos_token, "`, the id ", talk.stop_ids.front(),
                ", where the base's own generation_config does not stop. `lora` does; others must be told:\n\n",
                "```python\nmodel.generate(**inputs, eos_token_id=[", ids, "])  # transformers\n",
                "SamplingParams(stop_token_ids=[", ids, "])  # vLLM\n```\n");
}

}  // namespace lora::run
