#include "lora/data/cut_texts.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "lora/data/token_store.hpp"
#include "support/environment.hpp"
#include "support/message_of.hpp"
#include "support/temp_folder.hpp"

namespace cut_texts_test {

using namespace lora;

namespace {

std::vector<std::int32_t> counting(std::int32_t first, std::size_t count) {
  std::vector<std::int32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

std::vector<std::int32_t> listed(std::span<const std::int32_t> tokens) { return {tokens.begin(), tokens.end()}; }

}  // namespace

TEST_CASE("cut texts: sequences are records but where texts have blocks") {
  data::CutTexts cut;
  CHECK(cut.empty());
  CHECK(cut.sequence_of(7) == 7);
  CHECK(cut[3].record == 3);
  cut.add(1, counting(100, 5), 3);
  cut.add(2, counting(200, 4), 2);
  cut.add(5, counting(300, 9), 4);
  cut.finish();
  const std::vector<Index> records = {0, 1, 1, 1, 2, 2, 3, 4, 5, 5, 5, 5, 6};
  const std::vector<Index> blocks = {0, 0, 1, 2, 0, 1, 0, 0, 0, 1, 2, 3, 0};
  for (Index i = 0; i < std::ssize(records); ++i) {
    CAPTURE(i);
    const auto at = static_cast<std::size_t>(i);
    const bool block = records[at] == 1 || records[at] == 2 || records[at] == 5;
    CHECK(cut.record_of(i) == records[at]);
    CHECK(cut.is_block(i) == block);
    CHECK(cut[i].record == records[at]);
    CHECK(cut[i].block == blocks[at]);
    CHECK(cut[i].text.empty() == !block);
    CHECK(cut.sequence_of(records[at]) == i - blocks[at]);
  }
  CHECK(cut.sequence_of(7) == 13);
  CHECK(listed(cut[5].text) == counting(200, 4));
  CHECK(listed(cut[8].text) == counting(300, 9));
}

TEST_CASE("token store: the same tokens from memory and from a temporary file, of which no name is left") {
  const test::TempFolder temp;
  const test::Environment folder("TMPDIR", temp.path().native());
  for (const std::size_t most : {1000u, 25u, 7u, 0u}) {
    data::TokenStore store(most);
    for (std::int32_t i = 0; i < 40; ++i) store.append(counting(10 * i, 10));
    CHECK(std::filesystem::is_empty(temp.path()));
    store.finish();
    REQUIRE(store.size() == 400);
    CHECK(listed(store.read(0, 400)) == counting(0, 400));
    CHECK(listed(store.read(123, 3)) == counting(123, 3));
  }
  data::TokenStore none;
  none.finish();
  CHECK(none.size() == 0);
}

TEST_CASE("token store: a folder that is not there is named, and the variable that names another") {
  const test::TempFolder temp;
  const test::Environment folder("TMPDIR", (temp / "missing").native());
  data::TokenStore store(2);
  const std::string told = test::message_of<IoError>([&] { store.append(counting(0, 5)); });
  CHECK(told == concat("cannot write the tokens of long texts to a temporary file in ", (temp / "missing").native(),
                       ": No such file or directory; TMPDIR names another folder"));
}

}  // namespace cut_texts_test
