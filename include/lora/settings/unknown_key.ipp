#pragma once

#include "lora/core/config.hpp"
#include "lora/core/format.hpp"
#include "lora/settings/foreign_keys.hpp"
#include "lora/settings/unknown_key.hpp"

namespace lora::settings::detail {

LORA_INLINE std::size_t edits_between(std::string_view given, std::string_view name) {
  const auto letter = [&](std::size_t i) { return given[i] == '-' ? '_' : given[i]; };
  std::vector<std::size_t> before, above(name.size() + 1), row(name.size() + 1);
  for (std::size_t j = 0; j <= name.size(); ++j) above[j] = j;
  for (std::size_t i = 0; i < given.size(); ++i) {
    row[0] = i + 1;
    for (std::size_t j = 0; j < name.size(); ++j) {
      row[j + 1] = std::min({above[j] + (letter(i) == name[j] ? 0 : 1), above[j + 1] + 1, row[j] + 1});
      if (i > 0 && j > 0 && letter(i) == name[j - 1] && letter(i - 1) == name[j])
        row[j + 1] = std::min(row[j + 1], before[j - 1] + 1);
    }
    before = above;
    above = row;
  }
  return above.back();
}

}  // namespace lora::settings::detail

namespace lora::settings {

LORA_INLINE std::string_view nearest_name(std::string_view given, const std::vector<std::string_view>& names) {
  std::string_view best;
  std::size_t fewest = (given.size() + 2) / 3 + 1;
  for (const std::string_view name : names) {
    const std::size_t edits = detail::edits_between(given, name);
    if (edits >= fewest) continue;
    fewest = edits;
    best = name;
  }
  return best;
}

LORA_INLINE std::string_view nearest_key(std::string_view given, unsigned commands) {
  std::vector<std::string_view> names;
  for (const Key& key : keys())
    if (key.commands & commands) names.push_back(key.name);
  return nearest_name(given, names);
}

}  // namespace lora::settings

namespace lora::settings::detail {

LORA_INLINE std::string meant(std::string_view given, unsigned commands) {
  std::string name(given);
  std::replace(name.begin(), name.end(), '-', '_');
  if (const Key* key = find_key(name); key != nullptr && !(key->commands & commands)) {
    std::string owners;
    const bool trains = (key->commands & train_command) != 0;  // so that plan has it too
    for (const Command command : settings::all_commands)
      if ((key->commands & command) && !(trains && command == plan_command))
        owners += concat(owners.empty() ? "a key of " : ", ", name_of(command));
    return owners;
  }
  if (const ForeignKey* foreign = find_foreign(name)) return concat("here: ", foreign->here);
  const std::string_view nearest = nearest_key(name, commands);
  return nearest.empty() ? std::string() : concat("nearest: ", nearest);
}

}  // namespace lora::settings::detail

namespace lora::settings {

LORA_INLINE bool is_secret(std::string_view name) {
  const std::string small = ascii_lower(std::string(name));
  for (const std::string_view last : {"token", "key", "secret", "password", "url"})
    if (small.ends_with(last)) return true;
  return false;
}

LORA_INLINE io::Json without_secrets(io::Json json) {
  if (json.is_object()) {
    for (auto& [name, value] : json.get_ref<io::Json::object_t&>())
      value = is_secret(name) ? io::Json("...") : without_secrets(std::move(value));
  } else if (json.is_array()) {
    for (io::Json& value : json) value = without_secrets(std::move(value));
  }
  return json;
}

LORA_INLINE void refuse_unknown(std::string_view where, std::span<const UnknownKey> unknown, unsigned commands,
                                std::string_view page) {
  std::string list;
  for (const UnknownKey& key : unknown) {
    const std::string given = is_secret(key.name) ? std::string() : shortened(key.given, 80);
    const std::string hint =
        detail::meant(std::string_view(key.name).substr(key.name.starts_with("--") ? 2 : 0), commands);
    list += concat(list.empty() ? "" : ", ", shortened(key.name, 80));
    if (given.empty() && hint.empty()) continue;
    list += concat(" (", given.empty() ? "" : "given ", given, given.empty() || hint.empty() ? "" : "; ", hint, ")");
  }
  // Not by fail, which would leave out the middle of a long list.
  throw ConfigError(printable(
      concat(where, unknown.size() > 1 ? "unknown keys " : "unknown key ", list, "; allowed: the keys of ", page)));
}

}  // namespace lora::settings
