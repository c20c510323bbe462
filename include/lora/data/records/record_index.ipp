#pragma once

#include "lora/core/config.hpp"
#include "lora/data/records/record_index.hpp"

namespace lora::data {

LORA_INLINE std::size_t RecordIndex::begin(Index record) const {
  const auto passed = std::upper_bound(passes_.begin(), passes_.end(), record) - passes_.begin();
  return static_cast<std::size_t>(passed) * span + begins_[static_cast<std::size_t>(record)];
}

LORA_INLINE Index RecordIndex::line(Index record) const {
  return lines_.empty() ? first_line_ + record * lines_each_ : Index{lines_[static_cast<std::size_t>(record)]};
}

LORA_INLINE bool RecordIndex::shares_line(Index record) const {
  return (record > 0 && line(record - 1) == line(record)) || (record + 1 < size() && line(record + 1) == line(record));
}

LORA_INLINE void RecordIndex::add(std::size_t begin, Index line, const std::string& file) {
  if (line > std::numeric_limits<std::uint32_t>::max())
    fail<FormatError>(file, ": a record past line ", std::numeric_limits<std::uint32_t>::max(), "; expected fewer");
  const Index record = size();
  if (record == 0) first_line_ = line;
  if (record == 1) lines_each_ = line - first_line_;
  if (lines_.empty() && line != this->line(record))
    for (Index i = 0; i < record; ++i) lines_.push_back(static_cast<std::uint32_t>(first_line_ + i * lines_each_));
  if (!lines_.empty()) lines_.push_back(static_cast<std::uint32_t>(line));
  while (begin / span > passes_.size()) passes_.push_back(record);
  begins_.push_back(static_cast<std::uint32_t>(begin % span));
}

LORA_INLINE void RecordIndex::keep(Index count) {
  const auto kept = static_cast<std::size_t>(count);
  if (kept < begins_.size()) begins_.resize(kept);
  if (kept < lines_.size()) lines_.resize(kept);
  while (!passes_.empty() && passes_.back() >= count) passes_.pop_back();
}

}  // namespace lora::data

namespace lora::data::detail {

LORA_INLINE Index column_at(std::string_view text, std::size_t at) {
  const std::size_t before = text.substr(0, at).rfind('\n');
  return static_cast<Index>(at - (before == text.npos ? 0 : before + 1)) + 1;
}

LORA_INLINE RecordIndex RecordFinder::find_lines() {
  RecordIndex records(RecordLayout::lines);
  for (Index line = 1; at_ < text_.size(); ++line) {
    const std::size_t end = std::min(text_.find('\n', at_), text_.size());
    const std::string_view bytes = text_.substr(at_, end - at_);
    if (!std::all_of(bytes.begin(), bytes.end(), is_json_space)) records.add(at_, line, name_);
    at_ = end + 1;
    release();
  }
  return records;
}

LORA_INLINE std::string_view RecordFinder::spread_object() {
  skip_space();
  const std::size_t begin = at_;
  const Index first = line_;
  try {
    skip_object(first);
  } catch (const FormatError&) {
    return {};  // parsing its first line gives a better error
  }
  return line_ > first ? text_.substr(begin, at_ - begin) : std::string_view();
}

LORA_INLINE RecordIndex RecordFinder::find_objects() {
  RecordIndex records(RecordLayout::array);
  skip_space();
  ++at_;  // the bracket
  skip_space();
  for (bool first = true; !take(']'); first = false) {
    const Index before = records.size();
    if (!first && !take(',')) fail_here("expected , or ] between records", before);
    skip_space();
    if (at_ >= text_.size() || text_[at_] != '{')
      fail_here(first ? "expected a record {...}" : "expected a record {...} behind the comma", before);
    const Index line = line_;
    const std::size_t begin = at_;
    skip_object(line, before);
    records.add(begin, line, name_);
    skip_space();
    release();
  }
  skip_space();
  if (at_ < text_.size()) fail_here("expected the end of the file after ]", records.size());
  return records;
}

LORA_INLINE std::string_view RecordFinder::record(const RecordIndex& records, Index record) {
  const std::size_t begin = at_ = records.begin(record);
  if (records.layout() == RecordLayout::array) {
    skip_object(records.line(record), record);
    return text_.substr(begin, at_ - begin);
  }
  std::string_view line = text_.substr(begin, std::min(text_.find('\n', begin), text_.size()) - begin);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

LORA_INLINE void RecordFinder::skip_space() {
  for (; at_ < text_.size() && is_json_space(text_[at_]); ++at_) line_ += text_[at_] == '\n';
}

LORA_INLINE bool RecordFinder::take(char c) {
  const bool there = at_ < text_.size() && text_[at_] == c;
  at_ += there;
  return there;
}

LORA_INLINE void RecordFinder::skip_object(Index first_line, Index before) {
  const std::size_t begin = at_;
  Index depth = 0;
  for (; at_ < text_.size(); ++at_) {
    const char c = text_[at_];
    if (c == '"') {
      skip_string();
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if ((c == '}' || c == ']') && --depth == 0) {
      ++at_;
      return;
    } else if (c == '\n') {
      ++line_;
    }
  }
  fail<FormatError>(name_, ":", first_line, ":", column_at(text_, begin), ": record ", before + 1,
                    ", which begins here, has no end");
}

LORA_INLINE void RecordFinder::skip_string() {
  for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
    line_ += text_[at_] == '\n';
    if (text_[at_] == '\\') ++at_;
  }
}

LORA_INLINE void RecordFinder::fail_here(std::string_view expected, Index before) const {
  fail<FormatError>(name_, ":", line_, ":", column_at(text_, at_), ": ", expected,
                    before > 0 ? concat(" after record ", before) : "",
                    at_ < text_.size() ? concat(", found ", text_[at_]) : ", found the end of the file");
}

LORA_INLINE void RecordFinder::release() {
  constexpr std::size_t piece = std::size_t{32} << 20;
  if (file_ == nullptr || at_ - released_ < piece) return;
  file_->release();
  released_ = at_;
}

}  // namespace lora::data::detail
