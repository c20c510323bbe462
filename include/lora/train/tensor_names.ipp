#pragma once

#include "lora/core/config.hpp"
#include "lora/train/tensor_names.hpp"

namespace lora::train::detail {

LORA_INLINE bool is_number(const std::string& text) {
  return !text.empty() && text.size() < 10 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// "q_proj", "{q_proj,k_proj}", "0..27" or "{0,5..7}".
LORA_INLINE std::string part_text(const std::vector<std::string>& texts) {
  std::vector<std::string> items;
  if (!std::all_of(texts.begin(), texts.end(), is_number)) {
    items = texts;
  } else {
    std::vector<int> numbers;
    for (const std::string& text : texts) numbers.push_back(std::stoi(text));
    std::sort(numbers.begin(), numbers.end());
    for (std::size_t i = 0, last; i < numbers.size(); i = last + 1) {
      for (last = i; last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1;) ++last;
      items.push_back(last == i ? concat(numbers[i]) : concat(numbers[i], "..", numbers[last]));
    }
  }
  std::string list;
  for (const std::string& item : items) list += (list.empty() ? "" : ",") + item;
  return items.size() == 1 ? list : "{" + list + "}";
}

LORA_INLINE std::string text_of(const NameGroup& group, std::size_t without) {
  std::string text;
  for (std::size_t i = 0; i < group.size(); ++i)
    text += (i == 0 ? "" : ".") + (i == without ? std::string("?") : part_text(group[i]));
  return text;
}

/// Joins groups that differ in this part alone. `numbers`: only where it is one.
LORA_INLINE void join_at(std::vector<NameGroup>& groups, std::size_t part, bool numbers) {
  std::vector<NameGroup> joined;
  std::map<std::string, std::size_t> known;
  for (NameGroup& group : groups) {
    if (part >= group.size() || (numbers && !is_number(group[part].front()))) {
      joined.push_back(std::move(group));
      continue;
    }
    const auto [place, is_first] = known.emplace(text_of(group, part), joined.size());
    if (is_first) {
      joined.push_back(std::move(group));
    } else {
      auto& texts = joined[place->second][part];
      texts.insert(texts.end(), group[part].begin(), group[part].end());
    }
  }
  groups = std::move(joined);
}

}  // namespace lora::train::detail

namespace lora::train {

LORA_INLINE std::string tensor_names(const std::vector<std::string>& names) {
  std::vector<detail::NameGroup> groups;
  std::size_t longest = 0;
  for (std::string_view rest : names) {
    detail::NameGroup& group = groups.emplace_back();
    for (std::size_t dot = 0; dot != rest.npos; rest.remove_prefix(dot == rest.npos ? 0 : dot + 1)) {
      dot = rest.find('.');
      group.push_back({std::string(rest.substr(0, dot))});
    }
    longest = std::max(longest, group.size());
  }
  for (std::size_t part = longest; part-- > 0;) detail::join_at(groups, part, true);
  for (std::size_t part = longest; part-- > 0;) detail::join_at(groups, part, false);
  std::string text;
  for (const detail::NameGroup& group : groups) text += (text.empty() ? "" : ", ") + detail::text_of(group);
  return text;
}

}  // namespace lora::train
