#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/data/records/dataset_options.hpp"
#include "lora/data/records/learning_marks.hpp"
#include "lora/io/formats/json.hpp"
#include "lora/io/formats/json_view.hpp"

namespace lora::data {

/// What the fields of a file's records, and the roles of its turns, are called there, as LLaMA-Factory's
/// dataset_info.json says it: {"prompt": "question"}, {"user_tag": "customer"}. What is not named is not used.
struct RecordColumns {
  using Names = std::vector<std::pair<std::string, std::string>>;

  Names columns{};  ///< prompt, query, response, history; or messages; and system, tools
  Names tags{};     ///< role_tag and content_tag, fields of a turn; user_tag, assistant_tag and others, its roles

  bool operator==(const RecordColumns&) const = default;
  bool empty() const { return columns.empty() && tags.empty(); }
};

/// The names that columns and tags may have.
inline constexpr std::string_view column_names[] = {"prompt",   "query",  "response", "history",
                                                    "messages", "system", "tools"};
inline constexpr std::string_view tag_names[] = {"role_tag",        "content_tag",  "user_tag",  "assistant_tag",
                                                 "observation_tag", "function_tag", "system_tag"};

/// What is wrong with them; nothing if records can be read by them.
std::optional<std::string> offence(const RecordColumns& columns);

namespace detail {

/// A record under the names of a known kind: alpaca's, or a conversation's, or the text column where only the prompt is
/// named. Fields that nothing names go to `unused`, but the class and those that say what is learned, which stay.
/// Throws   FormatError, beginning with `where`, if the record lacks its prompt, messages or an answer that is needed
io::Json renamed(const io::Json& record, const RecordColumns& columns, const std::string& where,
                 const DatasetOptions& options, std::vector<std::string>& unused);

/// Gives the turns of such a record the names that are read, by the tags.
void rename_turns(io::Json& record, const RecordColumns& columns, std::vector<std::string>& unused);

/// What fields and roles are called in a file whose records were renamed: "instruction is \"q\", human is \"me\"".
std::string told_names(const RecordColumns& columns, std::string_view text_column);

}  // namespace detail

}  // namespace lora::data

#ifndef LORA_COMPILED
#  include "lora/data/records/record_columns.ipp"
#endif
