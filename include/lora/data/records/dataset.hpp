#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lora/core/hash.hpp"
#include "lora/core/log.hpp"
#include "lora/core/random.hpp"
#include "lora/data/chat/sample.hpp"
#include "lora/data/records/data_file.hpp"
#include "lora/data/records/record_index.hpp"
#include "lora/data/records/record_list.hpp"
#include "lora/data/records/record_reader.hpp"
#include "lora/data/records/table.hpp"
#include "lora/io/files/mapped_file.hpp"
#include "lora/io/files/text_encoding.hpp"
#include "lora/io/formats/json.hpp"
#include "lora/io/formats/parquet.hpp"
#include "lora/io/formats/unpack.hpp"
#include "lora/tokenizer/unicode.hpp"

namespace lora::data {

/// The records of one or more data files or record lists, parsed on access: the files stay mapped, and only where each
/// record begins is kept in memory; pages that were read are given back. A folder's files are one after the other what
/// a single one would be. A file's format is detected from its content: a JSON array, JSON lines, Parquet, for .csv and
/// .tsv a table or, for .txt, one text per line; files of gzip and Zstandard are unpacked first.
class Dataset {
 public:
  /// A path that is the name of one of `lists` stands for its records.
  /// Throws   IoError if a file cannot be opened; FormatError if it has no records or an array is broken between them
  static Dataset open(std::span<const DataFile> files, DatasetOptions options = {}, const RecordLists& lists = {});

  static Dataset open(std::span<const std::string> paths, DatasetOptions options = {}, const RecordLists& lists = {});

  /// Records, counted as often as they come.
  Index size() const { return sources_.empty() ? 0 : sources_.back().end(); }
  /// Whether some come more than once.
  bool repeats() const;
  /// The number under which a record comes first.
  Index first_of(Index record) const;
  /// The first file, or folder, and the number of others.
  std::string name() const;

  /// Reads one record. Thread-safe.
  /// Throws   FormatError with file and line
  Sample operator[](Index record) const;

  /// The kind of records in each file, or folder.
  std::vector<Sample::Kind> kinds() const;
  /// Files, a folder counted once.
  Index files() const { return std::ssize(sources_); }
  /// The number of a record's file.
  Index file_number(Index record) const { return source_of(record) - sources_.begin(); }
  /// The kind of a record, without reading it: all records of a file have the same.
  Sample::Kind kind_of(Index record) const { return source_of(record)->kind; }
  /// An upper bound for the size of a record's text, without reading it.
  std::size_t bytes_of(Index record) const;

  /// Unused fields of the records read so far, sorted, without those returned before.
  std::vector<std::string> take_unused_fields() const { return unused_->take(); }

  /// What columns of files name that no record has which was read so far, a sentence each, without those returned
  /// before.
  std::vector<std::string> take_absent_columns() const;

  /// A hash of the records' bytes in order, independent of the files' names.
  std::uint64_t fingerprint() const;

 private:
  struct File {
    std::string name;
    bool plain;
    std::shared_ptr<const io::MappedFile> mapped;  ///< null: the text is `list`
    std::string list;
    std::string_view text;
    std::optional<detail::Table> table;
    RecordIndex records{RecordLayout::lines};
    RecordColumns columns;
    Index first = 0;  ///< place of its first record: places are counted over all files
    Sample::Kind kind = Sample::Kind::text;
    // A bit for each of the columns.
    mutable std::atomic<std::uint64_t> found_columns = 0, told_columns = 0;

    Index end() const { return first + records.size(); }
    std::string_view bytes(Index at) const;
    /// "d.json:7" or, where several records stand on a line, "d.json:7: record 3118 (index 3117)", counted in the file.
    std::string place(Index at) const;
    static std::string note(Index own) { return concat("record ", own + 1, " (index ", own, ")"); }

    io::Json parse(Index at, std::string_view bytes) const;
    void note_columns(const io::Json& json) const;

    std::size_t most_bytes(Index at) const;
  };

  /// What is taken of a DataFile: its records in their order, over and over where more are asked for, and behind whole
  /// passes some that are drawn.
  struct Source {
    Index first = 0;                     ///< number of its first record, as they come
    Index size = 0;                      ///< records, counted as often as they come
    Index place = 0;                     ///< of the first that it takes
    Index records = 0;                   ///< that differ
    std::vector<std::uint32_t> drawn{};  ///< of these
    std::size_t first_file = 0, files = 0;
    std::string name{};
    Sample::Kind kind = Sample::Kind::text;

    Index end() const { return first + size; }
    Index place_of(Index record) const;
    void repeat(Index count, std::uint64_t key);
    void keep(Index count);
  };

  /// Unused fields; shared between copies of a data set.
  class UnusedFields {
   public:
    void add(const std::vector<std::string>& fields);
    std::vector<std::string> take();

   private:
    std::mutex mutex_;
    std::map<std::string, bool> fields_;  // true: told
  };

  Dataset() = default;

  /// Those that a path means, which are of one kind.
  void add_files(const std::string& path, const RecordColumns& columns);

  void add_file(const std::string& path, const RecordColumns& columns);

  void add_list(const std::string& name, const RecordList& list, const RecordColumns& columns);

  /// A record under the names that are read.
  io::Json read_named(const File& file, Index at, std::string_view bytes, std::vector<std::string>& unused) const;

  /// Calls what reads a record; its errors say, too, what the file calls the fields and roles that they name.
  template <class F>
  void under_own_names(const File& file, F&& read) const;

  void add(std::shared_ptr<File> file);

  /// Of the first record, which decides about its file.
  Sample::Kind first_kind(const File& file) const;

  [[noreturn]] static void fail_unknown(const std::string& name, std::string_view text, char first);

  /// Forgets all records but the first ones.
  void keep(Index count);

  /// Forgets where those records are that lie behind all that are taken.
  void forget();

  /// What a file of a source adds of the records that are taken.
  static void add_to(Fingerprint& fingerprint, const File& file, const Source& source);

  /// Takes so many records of the last source.
  void take(Index count);

  /// Takes a split of the last source's records.
  void take(const std::string& split);

  std::vector<Source>::const_iterator source_of(Index record) const;
  Index place_of(Index record) const { return source_of(record)->place_of(record); }
  const File& file_at(Index place) const;

  /// Without this, a record over several lines would fail at the end of its first line with an unhelpful error.
  static void refuse_spread_object(std::string_view text, const std::string& path);

  DatasetOptions options_;
  std::vector<std::shared_ptr<File>> files_;  // shared between copies of a data set
  Index places_ = 0;
  std::vector<Source> sources_;
  std::shared_ptr<UnusedFields> unused_ = std::make_shared<UnusedFields>();
};

}  // namespace lora::data

#ifndef LORA_COMPILED
#  include "lora/data/records/dataset.ipp"
#endif
