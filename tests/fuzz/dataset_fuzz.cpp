#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/target.hpp"
#include "lora/data/batches/encode.hpp"
#include "lora/data/records/dataset.hpp"
#include "lora/io/formats/csv.hpp"

namespace fuzz_dataset {

namespace {

using namespace lora;

/// A folder of this process that goes when it ends.
struct Folder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / concat("lora-fuzz-dataset-", static_cast<Index>(::getpid()));
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

/// The places of records lie in the text and in order. The text is memory of its own here, so that reading past it
/// shows.
void find(const std::vector<char>& bytes, bool array) {
  const std::string_view text(bytes.data(), bytes.size());
  const std::string name = "input";
  data::detail::RecordFinder finder(text, name);
  const data::RecordIndex records = array ? finder.find_objects() : finder.find_lines();
  const char* end = text.data();
  Index line = 0;
  for (Index i = 0; i < records.size(); ++i) {
    const std::string_view record = finder.record(records, i);
    if (record.data() < end || records.line(i) < line) __builtin_trap();
    end = record.data() + record.size();
    line = records.line(i);
  }
  if (end > text.data() + text.size()) __builtin_trap();
}

/// The same of the rows of a table, which are read again from where they begin.
void find_rows(const std::vector<char>& bytes, char separator) {
  const std::string_view text(bytes.data(), bytes.size());
  const std::string name = "input";
  io::CsvRows row(text, name, separator);
  std::size_t end = 0;
  while (row.next()) {
    if (row.begin() < end || row.end() < row.begin() || row.next_begin() < row.end()) __builtin_trap();
    if (row.count() < 1 || row.count() != std::ssize(row.cells()) || row.begin_of(0) != row.begin()) __builtin_trap();
    io::CsvRows again(text, name, separator, io::CsvRows::Cells::kept, row.begin(), row.line());
    if (!again.next() || again.cells() != row.cells() || again.end() != row.end()) __builtin_trap();
    end = row.next_begin();
  }
  if (end > text.size()) __builtin_trap();
}

void read(const std::string& path, bool need_answer) {
  data::DatasetOptions options;
  options.need_answer = need_answer;
  const auto dataset = data::Dataset::open(std::vector<std::string>{path}, options);
  (void)dataset.fingerprint();
  const data::Encoder encoder(nullptr, std::nullopt, {.cutoff_len = 16, .vocab_size = 100});
  for (Index i = 0; i < dataset.size(); ++i) {
    try {
      const auto sample = dataset[i];
      (void)sample.question();
      (void)sample.answer();
      if (sample.kind != data::Sample::Kind::tokens) continue;
      const auto example = encoder(sample);
      if (example.tokens.size() != example.labels.size() || example.tokens.size() > 16) __builtin_trap();
      (void)data::preview(example, nullptr);
    } catch (const Error&) {}  // the next record may be whole
  }
}

}  // namespace

/// A data file under each of the names that decide how it is read.
LORA_FUZZ_TARGET(dataset, data, size) {
  static const Folder folder;
  const std::vector<char> bytes(data, data + size);
  for (const bool array : {false, true}) {
    try {
      if (!array || bytes.size() > 0) find(bytes, array);
    } catch (const Error&) {}
  }
  for (const char separator : {',', '\t'}) {
    try {
      find_rows(bytes, separator);
    } catch (const Error&) {}
  }
  for (const char* name : {"d.json", "d.txt", "d.csv", "d.tsv"}) {
    const std::string path = (folder.path / name).native();
    std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    for (const bool need_answer : {false, true}) {
      try {
        read(path, need_answer);
      } catch (const Error&) {}
    }
  }
}

}  // namespace fuzz_dataset
