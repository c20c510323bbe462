// As in a build that found neither zlib nor libzstd nor libcsv nor Arrow, nor oneDNN, as the other sources here.
#undef LORA_WITH_CSV
#undef LORA_WITH_ONEDNN
#undef LORA_WITH_PARQUET
#undef LORA_WITH_YAML
#undef LORA_WITH_ZLIB
#undef LORA_WITH_ZSTD
#include "lora/io/formats/unpack.hpp"

#include <doctest/doctest.h>

#include <string>

#include "lora/data/records/dataset.hpp"
#include "support/message_of.hpp"
#include "support/one_file.hpp"

namespace unpack_test {

using namespace lora;

TEST_CASE("without libraries: a compressed data file is refused by the name of its compression, others are read") {
  const auto told = [](const std::string& begin) { return test::OneFile(begin).error(); };
  CHECK(test::holds(told("\x1F\x8B\x08"),
                    "compressed with gzip, which this program was built without (zlib was not "
                    "found); unpack it with gunzip"));
  CHECK(test::holds(told("\x28\xB5\x2F\xFD"),
                    "compressed with Zstandard, which this program was built without "
                    "(libzstd was not found); unpack it with unzstd"));
  CHECK(test::OneFile(R"({"text":"T"})").first().text == "T");
}

TEST_CASE("without libraries: a table as text is refused by the name of what reads it") {
  CHECK(
      test::OneFile("text\nT\n", "d.csv").error() ==
      "d.csv: a table as text, which this program was built without (libcsv was not found); expected JSON records: in "
      "Python, pandas.read_csv(NAME).to_json('NAME.jsonl', orient='records', lines=True) writes them");
  CHECK(test::OneFile(R"({"text":"T"})", "d.csv").first().text == "T");
}

TEST_CASE("without libraries: a Parquet file is refused by the option of what reads it") {
  CHECK(
      test::OneFile("PAR1\x15", "d.parquet").error() ==
      "d.parquet: a Parquet file, which this program was built without (Arrow was not found; see LORA_WITH_PARQUET in "
      "docs/install.md); expected JSON records: in Python, "
      "datasets.Dataset.from_parquet(NAME).to_json('NAME.jsonl') writes them");
}

}  // namespace unpack_test
