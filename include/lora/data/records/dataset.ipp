#pragma once

#include "lora/core/config.hpp"
#include "lora/data/records/dataset.hpp"

namespace lora::data::detail {

constexpr std::uint64_t repeat_purpose = 0x726570656174u;

}  // namespace lora::data::detail

namespace lora::data {

LORA_INLINE Dataset Dataset::open(std::span<const DataFile> files, DatasetOptions options, const RecordLists& lists) {
  Dataset dataset;
  dataset.options_ = std::move(options);
  if (files.empty()) fail<ConfigError>("dataset names no file");
  for (const DataFile& file : files) {
    const Index before = dataset.size(), place = dataset.places_;
    const std::size_t first_file = dataset.files_.size();
    const auto list = lists.find(file.path);
    if (list == lists.end()) {
      dataset.add_files(file.path, file.columns);
    } else {
      dataset.add_list(file.path, list->second, file.columns);
    }
    const Index found = dataset.places_ - place;
    dataset.sources_.push_back({.first = before,
                                .size = found,
                                .place = place,
                                .records = found,
                                .first_file = first_file,
                                .files = dataset.files_.size() - first_file,
                                .name = file.path,
                                .kind = dataset.files_.back()->kind});
    if (!file.split.empty()) dataset.take(file.split);
    if (file.num_samples) dataset.take(*file.num_samples);
    if (file.max_samples) dataset.keep(before + std::clamp<Index>(*file.max_samples, 0, dataset.size() - before));
  }
  if (const auto most = dataset.options_.max_samples) dataset.keep(std::max<Index>(*most, 0));
  return dataset;
}

LORA_INLINE Dataset Dataset::open(std::span<const std::string> paths, DatasetOptions options,
                                  const RecordLists& lists) {
  const std::vector<DataFile> files(paths.begin(), paths.end());
  return open(files, std::move(options), lists);
}

LORA_INLINE std::string Dataset::name() const {
  const std::string& first = sources_[0].name;
  return sources_.size() == 1 ? first : concat(first, " and ", sources_.size() - 1, " more");
}

LORA_INLINE Sample Dataset::operator[](Index record) const {
  const Index place = place_of(record);
  const File& file = file_at(place);
  const std::string_view bytes = file.bytes(place);
  const std::string where = file.place(place);
  Sample sample;
  if (file.plain) {
    const std::size_t invalid = tokenizer::unicode::find_invalid_utf8(bytes);
    if (invalid != std::string_view::npos) io::refuse_wide_text(file.name, file.text, false);
    if (invalid != std::string_view::npos) fail<FormatError>(where, ":", invalid + 1, ": invalid UTF-8");
    sample.kind = Sample::Kind::text;
    sample.text = bytes;
  } else {
    std::vector<std::string> unnamed;
    const io::Json json = read_named(file, place, bytes, unnamed);
    under_own_names(file, [&] {
      detail::RecordReader reader(json, where, options_);
      if (reader.kind() != file.kind)
        fail<FormatError>(where, ": ", detail::what_it_is(reader.kind()), ", but the file begins with ",
                          detail::what_it_is(file.kind), "; the records of one file must be of one kind");
      sample = reader.read();
      if (!reader.unused().empty()) unused_->add(reader.unused());
    });
    if (!unnamed.empty()) unused_->add(unnamed);
  }
  sample.where = where;
  sample.record = record;
  return sample;
}

LORA_INLINE bool Dataset::repeats() const {
  return std::any_of(sources_.begin(), sources_.end(),
                     [](const Source& source) { return source.size > source.records; });
}

LORA_INLINE Index Dataset::first_of(Index record) const {
  const Source& source = *source_of(record);
  return source.first + source.place_of(record) - source.place;
}

LORA_INLINE std::size_t Dataset::bytes_of(Index record) const {
  const Index place = place_of(record);
  return file_at(place).most_bytes(place);
}

LORA_INLINE std::vector<Sample::Kind> Dataset::kinds() const {
  std::vector<Sample::Kind> kinds;
  for (const Source& source : sources_) kinds.push_back(source.kind);
  return kinds;
}

LORA_INLINE std::vector<std::string> Dataset::take_absent_columns() const {
  std::vector<std::string> sentences;
  for (const auto& file : files_) {
    if (file->plain) continue;
    const std::uint64_t found = file->found_columns | file->told_columns.exchange(~std::uint64_t{0});
    for (std::size_t i = 0; i < file->columns.columns.size(); ++i) {
      const auto& [column, field] = file->columns.columns[i];
      if (!(found >> i & 1u) && column != "response")  // which is an error where it is needed
        sentences.push_back(concat(std::string_view(file->name), ": no record that was read has \"",
                                   std::string_view(field), "\", which columns of the file name as ",
                                   std::string_view(column)));
    }
  }
  return sentences;
}

LORA_INLINE std::uint64_t Dataset::fingerprint() const {
  Fingerprint fingerprint(static_cast<std::uint64_t>(size()));
  for (const Source& source : sources_) {
    for (std::size_t i = 0; i < source.files; ++i) add_to(fingerprint, *files_[source.first_file + i], source);
    if (source.size <= source.records) continue;
    fingerprint.add(concat(source.size, " of ", source.records));
    for (const std::uint32_t drawn : source.drawn) fingerprint.add(concat(drawn));
  }
  return fingerprint.value();
}

LORA_INLINE void Dataset::add_to(Fingerprint& fingerprint, const File& file, const Source& source) {
  const Index begin = std::max(file.first, source.place), end = std::min(file.end(), source.place + source.records);
  for (Index place = begin; place < end; ++place) fingerprint.add(file.bytes(place));
  if (file.plain) return;
  if (file.table) fingerprint.add(file.table->header());
  for (RecordColumns::Names names : {file.columns.columns, file.columns.tags}) {  // of which the order means nothing
    std::sort(names.begin(), names.end());
    for (const auto& [name, field] : names)  // by which the same bytes are other records
      fingerprint.add(concat(std::string_view(name), "=", std::string_view(field)));
  }
}

LORA_INLINE Index Dataset::Source::place_of(Index record) const {
  const Index own = record - first, passed = size - std::ssize(drawn);
  return place + (own < passed ? own % records : Index{drawn[static_cast<std::size_t>(own - passed)]});
}

LORA_INLINE void Dataset::Source::repeat(Index count, std::uint64_t key) {
  size = count;
  if (count % records == 0) return;
  drawn = permutation(records, key);
  drawn.resize(static_cast<std::size_t>(count % records));
  drawn.shrink_to_fit();
}

LORA_INLINE void Dataset::Source::keep(Index count) {
  const Index passed = size - std::ssize(drawn);
  drawn.resize(static_cast<std::size_t>(std::max<Index>(count - passed, 0)));
  size = count;
  records = std::min(records, count);
}

LORA_INLINE std::string_view Dataset::File::bytes(Index at) const {
  const Index own = at - first;
  const std::string_view found =
      table ? table->bytes(records, own) : detail::RecordFinder(text, name).record(records, own);
  if (mapped) mapped->note_read(found.size());
  return found;
}

LORA_INLINE std::string Dataset::File::place(Index at) const {
  const Index own = at - first;
  return concat(name, ":", records.line(own), records.shares_line(own) ? ": " + note(own) : "");
}

LORA_INLINE io::Json Dataset::File::parse(Index at, std::string_view bytes) const {
  const Index own = at - first, line = records.line(own);
  if (table) return table->read(records, own);
  try {
    return io::parse_json(bytes, name, false, io::JsonPlace{line});
  } catch (const FormatError&) {
    // The column is looked for only now, since a line may be as long as the file.
    const Index column = detail::column_at(text, records.begin(own));
    return io::parse_json(bytes, name, false,
                          io::JsonPlace{line, column, records.shares_line(own) ? note(own) : std::string()});
  }
}

LORA_INLINE void Dataset::File::note_columns(const io::Json& json) const {
  std::uint64_t found = 0;
  for (std::size_t i = 0; i < columns.columns.size(); ++i)
    if (json.is_object() && json.contains(columns.columns[i].second)) found |= std::uint64_t{1} << i;
  if ((found_columns.load() & found) != found) found_columns.fetch_or(found);
}

LORA_INLINE std::size_t Dataset::File::most_bytes(Index at) const {
  const Index own = at - first;
  return (own + 1 < records.size() ? records.begin(own + 1) : text.size()) - records.begin(own);
}

LORA_INLINE void Dataset::UnusedFields::add(const std::vector<std::string>& fields) {
  const std::lock_guard lock(mutex_);
  for (const std::string& field : fields) fields_.emplace(field, false);
}

LORA_INLINE std::vector<std::string> Dataset::UnusedFields::take() {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (auto& [field, told] : fields_)
    if (!std::exchange(told, true)) names.push_back(field);
  return names;
}

LORA_INLINE io::Json Dataset::read_named(const File& file, Index at, std::string_view bytes,
                                         std::vector<std::string>& unused) const {
  io::Json json = file.parse(at, bytes);
  file.note_columns(json);
  if (!file.columns.empty()) json = detail::renamed(json, file.columns, file.place(at), options_, unused);
  if (file.table) under_own_names(file, [&] { detail::read_cells(json, file.place(at), options_); });
  detail::rename_turns(json, file.columns, unused);
  return json;
}

template <class F>
void Dataset::under_own_names(const File& file, F&& read) const {
  try {
    read();
  } catch (const FormatError& error) {
    const std::string names = detail::told_names(file.columns, options_.text_column);
    if (names.empty()) throw;
    fail<FormatError>(std::string_view(error.what()), "; by columns and tags of the file ", std::string_view(names));
  }
}

LORA_INLINE void Dataset::add_files(const std::string& path, const RecordColumns& columns) {
  const std::size_t first = files_.size();
  for (const std::string& name : files_at(path)) {
    add_file(name, columns);
    if (files_.back()->kind != files_[first]->kind)
      fail<FormatError>(name, ": begins with ", detail::what_it_is(files_.back()->kind), ", but ", files_[first]->name,
                        " with ", detail::what_it_is(files_[first]->kind),
                        "; the records of one folder must be of one kind");
  }
}

LORA_INLINE void Dataset::add_file(const std::string& path, const RecordColumns& columns) {
  auto file = std::make_shared<File>();
  file->name = path;
  file->plain = io::lower_extension(io::unpacked_name(path)) == ".txt";
  file->columns = columns;
  // Of which LLaMA-Factory calls a line so.
  if (file->plain && !columns.empty() && columns != RecordColumns{.columns = {{"prompt", "text"}}})
    fail<FormatError>(path, ": columns or tags of a .txt file, of which each line is a text; expected none, or ",
                      "{\"prompt\": \"text\"}");
  file->mapped = io::map_unpacked(path);
  const auto text_of = [](const io::MappedFile& mapped) {
    return std::string_view(reinterpret_cast<const char*>(mapped.bytes().data()), mapped.bytes().size());
  };
  if (io::is_parquet(path, text_of(*file->mapped))) {
    file->mapped = io::parquet_as_lines(*file->mapped);
    file->plain = false;
  }
  file->text = text_of(*file->mapped);
  if (file->text.starts_with("\xEF\xBB\xBF")) file->text.remove_prefix(3);
  io::refuse_wide_text(path, file->text);
  add(std::move(file));
}

LORA_INLINE void Dataset::add_list(const std::string& name, const RecordList& list, const RecordColumns& columns) {
  auto file = std::make_shared<File>();
  file->name = name;
  file->columns = columns;
  file->plain = false;
  file->list = list.text();
  file->text = file->list;
  add(std::move(file));
}

LORA_INLINE void Dataset::add(std::shared_ptr<File> file) {
  const std::string_view text = file->text;
  const auto first = std::find_if_not(text.begin(), text.end(), detail::is_json_space);
  detail::RecordFinder finder(text, file->name, file->mapped.get());
  if (!file->plain && first != text.end() && *first == '{') refuse_spread_object(text, file->name);
  if (file->mapped && detail::Table::is_one(file->name, text)) {
    const detail::Table& table = file->table.emplace(text, file->name);
    table.expect(file->columns, options_.need_answer);
    file->records = table.find_rows(*file->mapped);
  } else if (first == text.end() || file->plain || *first == '{') {
    file->records = finder.find_lines();
  } else if (*first == '[') {
    file->records = finder.find_objects();
  } else {
    fail_unknown(file->name, text, *first);
  }
  if (file->records.size() == 0) fail<FormatError>(file->name, ": the file has no records");
  if (file->plain && *first == '{' && io::Json::accept(file->bytes(0)))
    log::warn(file->name,
              ": its first line is a record of JSON, but of a .txt file each line is learned as it stands; ",
              "a file of records is called .jsonl");
  file->first = places_;
  places_ = file->end();
  if (!file->plain) file->kind = first_kind(*file);
  files_.push_back(std::move(file));
}

LORA_INLINE Sample::Kind Dataset::first_kind(const File& file) const {
  std::vector<std::string> unnamed;
  Sample::Kind kind{};
  const io::Json json = read_named(file, file.first, file.bytes(file.first), unnamed);
  under_own_names(file, [&] { kind = detail::RecordReader(json, file.place(file.first), options_).kind(); });
  return kind;
}

LORA_INLINE void Dataset::fail_unknown(const std::string& name, std::string_view text, char first) {
  constexpr std::pair<std::string_view, std::string_view> packed[] = {
      {"PARE", "a Parquet file that is encrypted; expected one that is not"},
      {"PK\x03\x04",
       "a zip archive, as .xlsx files are one too; expected the file that is in it, of a spreadsheet saved as "
       "CSV UTF-8"},
      {"\xFD"
       "7zXZ",
       "packed by xz; expected it unpacked, or packed by gzip or Zstandard"},
      {"BZh", "packed by bzip2; expected it unpacked, or packed by gzip or Zstandard"},
      {"<!DOCTYPE", "a web page, as a download gives that was refused; expected the file itself"},
      {"<html", "a web page, as a download gives that was refused; expected the file itself"}};
  for (const auto& [begin, what] : packed)
    if (text.starts_with(begin)) fail<FormatError>(name, ": ", what);
  fail<FormatError>(name, ": neither JSON records nor Parquet, nor a file called .csv, .tsv or .txt; it begins with ",
                    first);
}

LORA_INLINE void Dataset::keep(Index count) {
  if (count >= size()) return;
  for (Source& source : sources_) {
    source.keep(std::clamp<Index>(count - source.first, 0, source.size));
    source.first = std::min(source.first, count);
  }
  forget();
}

LORA_INLINE void Dataset::forget() {
  places_ = 0;
  for (const Source& source : sources_)
    if (source.records > 0) places_ = source.place + source.records;
  for (const auto& file : files_) {
    file->records.keep(std::clamp<Index>(places_ - file->first, 0, file->records.size()));
    file->first = std::min(file->first, places_);
  }
}

LORA_INLINE void Dataset::take(Index count) {
  constexpr Index most = 0xFFFFFFFF;  // records of an epoch
  Source& source = sources_.back();
  if (count <= source.records) return keep(source.first + std::max<Index>(count, 0));
  const std::string& name = source.name;
  if (count > most) fail<ConfigError>(name, ": num_samples is ", count, "; at most ", most, " are supported");
  source.repeat(count, mix_key(options_.seed, detail::repeat_purpose, std::ssize(sources_)));
  log::info(name, ": ", count, " records are asked for and ", source.records, " are there: each comes ",
            count / source.records, count < 2 * source.records ? " time" : " times",
            source.drawn.empty() ? "" : concat(", and ", source.drawn.size(), " of them, drawn by seed, once more"));
}

LORA_INLINE void Dataset::take(const std::string& split) {
  Source& source = sources_.back();
  const auto slice = slice_of(split, source.records);
  if (!slice) fail<ConfigError>(source.name, ": ", told_split(split));
  const auto [begin, end] = *slice;
  if (begin == end)
    fail<FormatError>(source.name, ": the split ", std::string_view(split), " has none of its ", source.records,
                      " records");
  source.place += begin;
  source.size = source.records = end - begin;
  forget();
}

LORA_INLINE std::vector<Dataset::Source>::const_iterator Dataset::source_of(Index record) const {
  const auto after = std::upper_bound(sources_.begin(), sources_.end(), record,
                                      [](Index number, const Source& source) { return number < source.first; });
  return std::prev(after);
}

LORA_INLINE const Dataset::File& Dataset::file_at(Index place) const {
  const auto after = std::upper_bound(files_.begin(), files_.end(), place,
                                      [](Index number, const auto& file) { return number < file->first; });
  return **std::prev(after);
}

LORA_INLINE void Dataset::refuse_spread_object(std::string_view text, const std::string& path) {
  const std::string_view bytes = detail::RecordFinder(text, path).spread_object();
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

}  // namespace lora::data
