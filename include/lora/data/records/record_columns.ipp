#pragma once

#include <algorithm>
#include <iterator>

#include "lora/core/config.hpp"
#include "lora/data/records/record_columns.hpp"

namespace lora::data {

LORA_INLINE std::optional<std::string> offence(const RecordColumns& columns) {
  const auto wrong = [](const RecordColumns::Names& given, auto begin, auto end) -> std::optional<std::string> {
    for (std::size_t i = 0; i < given.size(); ++i) {
      const auto& [name, field] = given[i];
      if (std::find(begin, end, name) == end) {
        std::string list;
        for (auto known = begin; known != end; ++known) list += concat(list.empty() ? "" : ", ", *known);
        return concat("the name \"", std::string_view(name), "\"; expected ", std::string_view(list));
      }
      if (field.empty()) return concat("an empty text for ", std::string_view(name));
      for (std::size_t other = 0; other < i; ++other) {
        if (given[other].first == name) return concat("two texts for ", std::string_view(name));
        if (given[other].second == field)
          return concat("\"", std::string_view(field), "\" for ", std::string_view(given[other].first), " and ",
                        std::string_view(name));
      }
    }
    return std::nullopt;
  };
  if (auto told = wrong(columns.columns, std::begin(column_names), std::end(column_names))) return told;
  if (auto told = wrong(columns.tags, std::begin(tag_names), std::end(tag_names))) return told;
  const auto has = [&](std::string_view name) {
    return std::any_of(columns.columns.begin(), columns.columns.end(),
                       [&](const auto& column) { return column.first == name; });
  };
  const bool pair = has("prompt") || has("query") || has("response") || has("history");
  if (has("messages") && pair) return "messages beside prompt, query, response or history";
  if (!columns.columns.empty() && !has("messages") && !has("prompt")) return "neither prompt nor messages";
  if (!columns.tags.empty() && pair) return "tags beside prompt: they are of messages";
  return std::nullopt;
}

}  // namespace lora::data

namespace lora::data::detail {

/// Whether records of some kind are read by a field of this name.
LORA_INLINE bool is_read(std::string_view field) {
  for (const std::string_view known :
       {"input_ids", "messages", "conversations", "instruction", "input", "output", "prompt", "completion", "question",
        "answer", "query", "response", "system", "system_prompt", "history", "tools"})
    if (field == known) return true;
  return false;
}

/// What a column is called in records that are read.
LORA_INLINE std::string_view name_of_column(std::string_view column) {
  if (column == "prompt") return "instruction";
  if (column == "query") return "input";
  if (column == "response") return "output";
  return column == "messages" ? "conversations" : column;
}

/// The field of a turn that a tag means, or the role.
LORA_INLINE std::string_view name_of_tag(std::string_view tag) {
  if (tag == "role_tag") return "from";
  if (tag == "content_tag") return "value";
  if (tag == "user_tag") return "human";
  if (tag == "assistant_tag") return "gpt";
  if (tag == "function_tag") return "function_call";
  return tag == "system_tag" ? "system" : "observation";
}

/// A turn with from and value, and the roles of sharegpt.
LORA_INLINE io::Json renamed_turn(const io::Json& turn, const RecordColumns::Names& tags,
                                  std::vector<std::string>& unused) {
  if (!turn.is_object()) return turn;
  const auto tag_of = [&](std::string_view name, std::string_view otherwise) {
    const auto found = std::find_if(tags.begin(), tags.end(), [&](const auto& tag) { return tag.first == name; });
    return found == tags.end() ? otherwise : std::string_view(found->second);
  };
  const std::string_view role = tag_of("role_tag", "from"), content = tag_of("content_tag", "value");
  io::Json result = io::Json::object();
  auto& fields = result.get_ref<io::Json::object_t&>();
  for (const auto& [name, value] : io::json_fields(turn)) {
    if (name == role && value.is_string()) {
      std::string called = value.get<std::string>();
      for (const auto& [tag, word] : tags)
        if (tag != "role_tag" && tag != "content_tag" && word == called) {
          called = name_of_tag(tag);
          break;
        }
      fields.emplace_back("from", std::move(called));
    } else if (name == role || name == content) {
      fields.emplace_back(name == role ? "from" : "value", value);
    } else if (name == "from" || name == "value" || name == "role" || name == "content") {
      unused.push_back("conversations[]." + name);
    } else {
      fields.emplace_back(name, value);
    }
  }
  return result;
}

/// Whether records are texts, of which only the prompt has a name.
LORA_INLINE bool are_texts(const RecordColumns& columns) {
  return columns.columns.size() == 1 && columns.columns.front().first == "prompt";
}

LORA_INLINE std::string told_names(const RecordColumns& columns, std::string_view text_column) {
  std::string list;
  const auto tell = [&](std::string_view name, const std::string& own) {
    if (name != own) list += concat(list.empty() ? "" : ", ", name, " is \"", std::string_view(own), "\"");
  };
  for (const auto& [column, field] : columns.columns)
    tell(are_texts(columns) ? text_column : name_of_column(column), field);
  for (const auto& [tag, word] : columns.tags) tell(name_of_tag(tag), word);
  return list;
}

LORA_INLINE io::Json renamed(const io::Json& record, const RecordColumns& columns, const std::string& where,
                             const DatasetOptions& options, std::vector<std::string>& unused) {
  const std::string& label_field = options.label_field;
  if (!record.is_object()) return record;
  io::Json result = io::Json::object();
  auto& fields = result.get_ref<io::Json::object_t&>();
  RecordColumns::Names named = columns.columns;
  if (named.empty()) named = {{"messages", "conversations"}, {"system", "system"}, {"tools", "tools"}};
  for (const auto& [column, field] : named) {
    const auto found = record.find(field);
    if (found != record.end()) {
      fields.emplace_back(are_texts(columns) ? std::string_view(options.text_column) : name_of_column(column), *found);
    } else if (column == "prompt" || column == "messages" || (column == "response" && options.need_answer)) {
      fail<FormatError>(std::string_view(where), ": \"", std::string_view(field),
                        "\" is missing, which is the record's ", std::string_view(column), " by columns of its file");
    }
  }
  const auto is_named = [&](const std::string& name) {
    return std::any_of(named.begin(), named.end(), [&](const auto& column) { return column.second == name; });
  };
  for (const auto& [name, value] : io::json_fields(record)) {
    if (name == label_field && is_read(name))
      fail<FormatError>(std::string_view(where), ": the class of a record can't stand in \"",
                        std::string_view(label_field),
                        "\", which is read of records, where columns name its other fields; expected another name");
    if (is_named(name) && name != label_field) continue;
    if ((name == label_field || is_learning_mark(name)) && !result.contains(name))
      fields.emplace_back(name, value);
    else
      unused.push_back(name);
  }
  return result;
}

LORA_INLINE void rename_turns(io::Json& record, const RecordColumns& columns, std::vector<std::string>& unused) {
  if (columns.tags.empty() || !record.is_object()) return;
  const auto turns = record.find("conversations");
  if (turns == record.end() || !turns->is_array()) return;
  for (io::Json& turn : *turns) turn = renamed_turn(turn, columns.tags, unused);
}

}  // namespace lora::data::detail
