#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lora/core/hash.hpp"
#include "lora/data/record_list.hpp"
#include "lora/data/record_reader.hpp"
#include "lora/data/sample.hpp"
#include "lora/io/json.hpp"
#include "lora/io/mapped_file.hpp"
#include "lora/tokenizer/unicode.hpp"

namespace lora::data {

namespace detail {

/// The position of a record in its file.
struct RecordPlace {
  std::string_view bytes;
  Index line;
  std::size_t file;
};

inline bool is_json_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/// Finds where the records of one file begin and end without parsing them: 100 MB take a fraction of a second.
class RecordFinder {
 public:
  RecordFinder(std::string_view text, const std::string& name, std::size_t file, std::vector<RecordPlace>& places)
      : text_(text), name_(name), file_(file), places_(places) {}

  void find_lines() {
    for (Index line = 1; at_ < text_.size(); ++line) {
      const std::size_t end = std::min(text_.find('\n', at_), text_.size());
      std::string_view bytes = text_.substr(at_, end - at_);
      if (bytes.ends_with('\r')) bytes.remove_suffix(1);
      if (!std::all_of(bytes.begin(), bytes.end(), is_json_space)) places_.push_back({bytes, line, file_});
      at_ = end + 1;
    }
  }

  /// The object at the beginning of the text if it spans several lines, else nothing.
  std::string_view spread_object() {
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

  /// The objects of a JSON array.
  void find_objects() {
    skip_space();
    ++at_;  // the bracket
    skip_space();
    for (bool first = true; !take(']'); first = false) {
      if (!first && !take(',')) fail_here("expected , or ] between records");
      skip_space();
      if (at_ >= text_.size() || text_[at_] != '{') fail_here("expected a record {...}");
      const Index line = line_;
      const std::size_t begin = at_;
      skip_object(line);
      places_.push_back({text_.substr(begin, at_ - begin), line, file_});
      skip_space();
    }
    skip_space();
    if (at_ < text_.size()) fail_here("expected the end of the file after ]");
  }

 private:
  void skip_space() {
    for (; at_ < text_.size() && is_json_space(text_[at_]); ++at_) line_ += text_[at_] == '\n';
  }
  bool take(char c) {
    const bool there = at_ < text_.size() && text_[at_] == c;
    at_ += there;
    return there;
  }
  void skip_object(Index first_line) {
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
    fail<FormatError>(name_, ":", first_line, ": the record that begins here has no end");
  }
  /// To the closing quote, or the end of the text.
  void skip_string() {
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      line_ += text_[at_] == '\n';
      if (text_[at_] == '\\') ++at_;
    }
  }
  [[noreturn]] void fail_here(std::string_view expected) const {
    fail<FormatError>(name_, ":", line_, ": ", expected,
                      at_ < text_.size() ? concat(", found ", text_[at_]) : ", found the end of the file");
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t file_;
  std::vector<RecordPlace>& places_;
  std::size_t at_ = 0;
  Index line_ = 1;
};

}  // namespace detail

/// The records of one or more data files or record lists, parsed on access: the files stay mapped, and only the
/// position of each record is kept in memory. A file's format is detected from its content: a JSON array, JSON lines
/// or, for .txt, one text per line.
class Dataset {
 public:
  /// A path that is the name of one of `lists` stands for its records.
  /// Throws   IoError if a file cannot be opened; FormatError if it has no records or an array is broken between them
  static Dataset open(std::span<const std::string> paths, DatasetOptions options = {}, const RecordLists& lists = {}) {
    Dataset dataset;
    dataset.options_ = std::move(options);
    if (paths.empty()) fail<ConfigError>("dataset names no file");
    for (const std::string& path : paths) {
      const auto list = lists.find(path);
      if (list == lists.end()) {
        dataset.add_file(path);
      } else {
        const auto text = std::make_shared<const std::string>(list->second.text());
        dataset.add(path, text, *text, false);
      }
    }
    if (const auto most = dataset.options_.max_samples; most && *most < dataset.size())
      dataset.places_.resize(static_cast<std::size_t>(std::max<Index>(*most, 0)));
    return dataset;
  }

  Index size() const { return static_cast<Index>(places_.size()); }
  /// The first file and the number of others.
  std::string name() const {
    return files_.size() == 1 ? files_[0].name : concat(files_[0].name, " and ", files_.size() - 1, " more");
  }

  /// Reads one record. Thread-safe.
  /// Throws   FormatError with file and line
  Sample operator[](Index record) const {
    const auto& place = places_[static_cast<std::size_t>(record)];
    const File& file = files_[place.file];
    const std::string where = concat(file.name, ":", place.line);
    Sample sample;
    if (file.plain) {
      const std::size_t invalid = tokenizer::unicode::find_invalid_utf8(place.bytes);
      if (invalid != std::string_view::npos) fail<FormatError>(where, ":", invalid + 1, ": invalid UTF-8");
      sample.kind = Sample::Kind::text;
      sample.text = place.bytes;
    } else {
      const io::Json json = io::parse_json(place.bytes, file.name, false, place.line);
      detail::RecordReader reader(json, where, options_);
      if (reader.kind() != file.kind)
        fail<FormatError>(where, ": ", detail::what_it_is(reader.kind()), ", but the file begins with ",
                          detail::what_it_is(file.kind), "; the records of one file must be of one kind");
      sample = reader.read();
      if (!reader.unused().empty()) unused_->add(reader.unused());
    }
    sample.where = where;
    sample.record = record;
    return sample;
  }

  /// The kind of records in each file.
  std::vector<Sample::Kind> kinds() const {
    std::vector<Sample::Kind> kinds;
    for (const File& file : files_) kinds.push_back(file.kind);
    return kinds;
  }
  /// The kind of a record, without reading it: all records of a file have the same.
  Sample::Kind kind_of(Index record) const { return files_[places_[static_cast<std::size_t>(record)].file].kind; }
  /// The size of a record in its file, an upper bound for the size of its text.
  std::size_t bytes_of(Index record) const { return places_[static_cast<std::size_t>(record)].bytes.size(); }

  /// Unused fields of the records read so far, sorted, without those returned before.
  std::vector<std::string> take_unused_fields() const { return unused_->take(); }

  /// A hash of the records' bytes in order, independent of the files' names.
  std::uint64_t fingerprint() const {
    Fingerprint fingerprint(places_.size());
    for (const auto& place : places_) fingerprint.add(place.bytes);
    return fingerprint.value();
  }

 private:
  struct File {
    std::shared_ptr<const void> memory;  ///< of its bytes
    std::string name;
    bool plain;
    Sample::Kind kind = Sample::Kind::text;
  };

  /// Unused fields; shared between copies of a data set.
  class UnusedFields {
   public:
    void add(const std::vector<std::string>& fields) {
      const std::lock_guard lock(mutex_);
      for (const std::string& field : fields) fields_.emplace(field, false);
    }
    std::vector<std::string> take() {
      const std::lock_guard lock(mutex_);
      std::vector<std::string> names;
      for (auto& [field, told] : fields_)
        if (!std::exchange(told, true)) names.push_back(field);
      return names;
    }

   private:
    std::mutex mutex_;
    std::map<std::string, bool> fields_;  // true: told
  };

  Dataset() = default;

  void add_file(const std::string& path) {
    std::error_code unreadable;  // reported by MappedFile
    if (std::filesystem::is_directory(path, unreadable))
      fail<IoError>("dataset ", path, " is a folder; expected a file");
    auto mapped = std::make_shared<const io::MappedFile>(path);
    const auto bytes = mapped->bytes();
    std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
    add(path, std::move(mapped), text, std::filesystem::path(path).extension() == ".txt");
  }

  void add(const std::string& path, std::shared_ptr<const void> memory, std::string_view text, bool plain) {
    const auto first = std::find_if_not(text.begin(), text.end(), detail::is_json_space);
    const std::size_t before = places_.size();
    files_.push_back({std::move(memory), path, plain});
    detail::RecordFinder finder(text, files_.back().name, files_.size() - 1, places_);
    if (!plain && first != text.end() && *first == '{') refuse_spread_object(text, path);
    if (first == text.end() || plain || *first == '{') {
      finder.find_lines();
    } else if (*first == '[') {
      finder.find_objects();
    } else {
      fail<FormatError>(path, ": neither JSON records nor a .txt file; it begins with ", *first);
    }
    if (places_.size() == before) fail<FormatError>(path, ": the file has no records");
    if (plain) return;
    const auto& place = places_[before];
    const io::Json json = io::parse_json(place.bytes, path, false, place.line);
    files_.back().kind = detail::RecordReader(json, concat(path, ":", place.line), options_).kind();
  }

  /// Without this, a record over several lines would fail at the end of its first line with an unhelpful error.
  static void refuse_spread_object(std::string_view text, const std::string& path) {
    std::vector<detail::RecordPlace> none;
    const std::string_view bytes = detail::RecordFinder(text, path, 0, none).spread_object();
    if (bytes.empty()) return;
    std::string list;
    try {
      const io::Json object = io::parse_json(bytes, path);
      for (const auto& [field, value] : io::json_fields(object))
        if (value.is_array() && !value.empty() && value.front().is_object() && !detail::RecordReader::knows(field))
          list = concat("; the field ", field, " holds such an array");
    } catch (const FormatError&) {
      return;  // a broken record, then
    }
    fail<FormatError>(path, ": the file begins with an object over several lines; expected an array of records, or a ",
                      "record per line", list);
  }

  DatasetOptions options_;
  std::vector<File> files_;
  std::vector<detail::RecordPlace> places_;
  std::shared_ptr<UnusedFields> unused_ = std::make_shared<UnusedFields>();
};

}  // namespace lora::data
