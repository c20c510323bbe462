#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "lora/data/records/dataset.hpp"
#include "lora/io/files/file.hpp"
#include "lora/io/files/read_file.hpp"
#include "lora/io/formats/parquet.hpp"
#include "support/effort.hpp"
#include "support/message_of.hpp"
#include "support/one_file.hpp"
#include "support/packed.hpp"
#include "support/temp_folder.hpp"

namespace parquet_records_test {

using namespace lora;
using data::Dataset;
using data::Sample;
using test::OneFile;
using test::turns_of;

#ifdef LORA_WITH_PARQUET

namespace {

std::string fixture(const std::string& name) { return io::read_file(LORA_FIXTURES "/parquet/" + name); }

}  // namespace

TEST_CASE("parquet records: they are those of the same file as JSON, in any order") {
  for (const std::string name : {"chat", "pairs"}) {
    CAPTURE(name);
    const OneFile rows(fixture(name + ".parquet"), "d.parquet"), lines(fixture(name + ".jsonl"));
    const Dataset one = rows.open(), other = lines.open();
    REQUIRE(one.size() == other.size());
    CHECK(one.fingerprint() == other.fingerprint());
    CHECK(one.kinds() == std::vector{Sample::Kind::messages});
    for (Index i = one.size(); i-- > 0;) {
      CHECK(turns_of(one[i]) == turns_of(other[i]));
      CHECK(one[i].where == rows.path.native() + ":" + std::to_string(i + 1));
    }
    CHECK(one.take_unused_fields() == other.take_unused_fields());
  }
  CHECK(OneFile(fixture("pairs.parquet"), "d.parquet").open()[3].answer() == "the same answer");
}

TEST_CASE("parquet records: the content decides, and it may be packed") {
  const std::string content = fixture("pairs.parquet");
  for (const char* name : {"d", "d.jsonl", "d.csv", "d.txt"}) {
    CAPTURE(name);
    CHECK(OneFile(content, name).open()[1].answer() == "the same answer");
  }
  CHECK(OneFile(test::gzipped(content), "d.parquet.gz").open()[1].answer() == "the same answer");
  CHECK(OneFile("{\"text\": \"T\"}", "d.parquet").first().text == "T");
  CHECK(OneFile("PAR1 is a gene\n", "d.txt").first().text == "PAR1 is a gene");
}

TEST_CASE("parquet records: a file of a data set has columns and a number of records") {
  const OneFile rows(fixture("pairs.parquet"), "d.parquet");
  data::DataFile file(rows.path.native());
  file.columns.columns = {{"prompt", "completion"}, {"response", "prompt"}};
  file.max_samples = 2;
  const std::vector<data::DataFile> files{file};
  const Dataset dataset = Dataset::open(files);
  CHECK(dataset.size() == 2);
  CHECK(turns_of(dataset[1]) == "user=the same answer|assistant=p 1|");
}

TEST_CASE("parquet records: errors name the file and the row") {
  CHECK(OneFile(fixture("empty.parquet"), "d.parquet").error() == "d.parquet: the file has no records");
  CHECK(OneFile(fixture("keys.parquet"), "d.parquet").error() ==
        "d.parquet:1: column \"m\" is a map of 1; expected texts as keys");
  CHECK(OneFile(fixture("infinite.parquet"), "d.parquet").error().starts_with("d.parquet:2: column \"x\" is infinite"));
  CHECK(OneFile("PAR1\x15", "d.parquet").error().starts_with("d.parquet: the Parquet file can't be read: "));
}

#else

TEST_CASE("parquet records: they are those of the same file as JSON") {
  test::skipped("data: Parquet files, for want of Arrow");
}

#endif

TEST_CASE("parquet records: what only is called so is told") {
  CHECK(OneFile("id,text\n", "d.parquet").error() ==
        "d.parquet: neither JSON records nor Parquet, nor a file called .csv, .tsv or .txt; it begins with i");
  CHECK(OneFile("PARE\x15", "d.parquet").error() ==
        "d.parquet: a Parquet file that is encrypted; expected one that is not");
}

}  // namespace parquet_records_test
