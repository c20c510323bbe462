#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "lora/core/format.hpp"
#include "lora/model/stop_ids.hpp"
#include "lora/tokenizer/chat_files.hpp"
#include "lora/tokenizer/tokenizer.hpp"

namespace lora::run {

/// How a trained model is talked to, and what of it the files of its base don't say.
struct Talk {
  const tokenizer::Tokenizer* tokenizer = nullptr;  ///< the base's; null if it has none
  std::string template_name{};                      ///< that a run wrote its conversations by
  tokenizer::ChatFiles changes{};                   ///< of the base's files
  std::vector<std::int32_t> stop_ids{};  ///< all, the learnt end first, where the base does not stop there; else empty
};

/// `taught`: the template and the end of an answer that were learnt, as far as they are known.
/// Throws   FormatError
inline Talk talk_of(const model::Source& source, const tokenizer::Tokenizer* tokenizer,
                    const tokenizer::ChatFiles& taught, std::string template_name = "") {
  Talk talk{tokenizer, std::move(template_name)};
  if (tokenizer == nullptr) return talk;
  if (taught.chat_template != tokenizer->chat_template()) talk.changes.chat_template = taught.chat_template;
  const auto ids = model::stop_ids_with(source, model::id_of_end(*tokenizer, taught.eos_token));
  if (ids == model::stop_ids_of(source)) return talk;
  talk.stop_ids = ids;
  talk.changes.eos_token = taught.eos_token;
  return talk;
}

/// Writes the tokenizer's files, with the template and the end that were learnt.
inline void write_tokenizer(const Talk& talk, const std::filesystem::path& folder) {
  if (talk.tokenizer == nullptr) return;
  talk.tokenizer->save(folder);
  tokenizer::write_chat_files(folder, talk.changes);
}

/// The part of an adapter's README.md that tells how to stop generation, if its base does not stop where it must.
inline std::string stopping_text(const Talk& talk) {
  if (talk.stop_ids.empty()) return {};
  std::string ids;
  for (const std::int32_t id : talk.stop_ids) ids += concat(ids.empty() ? "" : ", ", id);
  return concat("\nAnswers end with `", talk.changes.eos_token, "`, the id ", talk.stop_ids.front(),
                ", where the base's own generation_config does not stop. `lora` does; others must be told:\n\n",
                "```python\nmodel.generate(**inputs, eos_token_id=[", ids, "])  # transformers\n",
                "SamplingParams(stop_token_ids=[", ids, "])  # vLLM\n```\n");
}

}  // namespace lora::run
