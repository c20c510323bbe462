#include "lora/run/base_checksum.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "support/random_model.hpp"
#include "support/temp_folder.hpp"

namespace base_checksum_test {

using namespace lora;
using namespace lora::run;

TEST_CASE("base checksum: of long strings it does not depend on the threads, and every piece counts") {
  std::vector<std::byte> longest(3'500'000, std::byte{7});
  const std::span<const std::byte> strings[] = {
      longest, {}, std::span(longest).first(1 << 20), std::span(longest).first(9)};
  const auto sums = checksums(strings, 1);
  REQUIRE(sums.size() == 4);
  for (const int threads : {0, 2, 5}) CHECK(checksums(strings, threads) == sums);
  CHECK(std::set<std::uint64_t>(sums.begin(), sums.end()).size() == 4);
  for (const std::size_t at : {std::size_t{0}, std::size_t{1} << 20, longest.size() - 1}) {
    longest[at] = std::byte{8};
    CHECK(checksums(strings, 2)[0] != sums[0]);
    longest[at] = std::byte{7};
  }
}

// Numbers that checkpoints hold: of this version, and of those before it that looked at samples alone. They go on only
// while the numbers stay the same.
TEST_CASE("base checksum: what checkpoints have recorded of a base stays as it is") {
  const test::TempFolder folder;
  test::RandomModel shape;
  test::write_random_model(folder.path(), shape);
  const auto source = model::Source::open(folder.path());
  CHECK(checksum_text(run::weights_checksum(source)) == "8c10e798a87e8415");
  CHECK(checksum_text(run::sampled_checksum(source)) == "4ffb22c460c03f14");
  CHECK(run::base_text(source, true) ==
        "qwen3, 2 layers of 16 and 24, vocabulary of 61, weights with checksum 4ffb22c460c03f14");
  CHECK(run::base_text(source, false) ==
        "qwen3, 2 layers of 16 and 24, vocabulary of 61, weights with checksum 8c10e798a87e8415 of all bytes");
}

TEST_CASE("base checksum: that of a long string is of its pieces of a mebibyte, as checkpoints have it") {
  std::vector<std::byte> bytes((std::size_t{1} << 21) + 5);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i % 251);
  const std::span<const std::byte> whole(bytes), strings[] = {whole, whole.first(std::size_t{1} << 20), {}};
  const auto sums = checksums(strings, 1);
  constexpr std::size_t piece = std::size_t{1} << 20;
  const std::vector<std::uint64_t> three = {checksum(whole.first(piece)), checksum(whole.subspan(piece, piece)),
                                            checksum(whole.subspan(2 * piece))},
                                   one = {three[0]}, none;
  CHECK(sums == std::vector<std::uint64_t>{checksum(std::as_bytes(std::span(three))),
                                           checksum(std::as_bytes(std::span(one))),
                                           checksum(std::as_bytes(std::span(none)))});
  CHECK(checksums({}, 4).empty());
}

TEST_CASE("base checksum: it is of names, types, shapes and bytes, whatever the order and the files") {
  const test::TempFolder folder;
  const auto sum_of = [&](const std::vector<test::RandomTensor>& tensors, DType dtype = DType::f32) {
    std::filesystem::remove_all(folder / "model");
    test::write_model(folder / "model", test::config_json({}), tensors, dtype);
    const auto source = model::Source::open(folder / "model");
    return std::pair(run::weights_checksum(source), run::sampled_checksum(source));
  };
  auto tensors = test::random_tensors({});
  const auto first = sum_of(tensors);
  std::reverse(tensors.begin(), tensors.end());
  CHECK(sum_of(tensors) == first);
  const auto bf16 = sum_of(tensors, DType::bf16);
  CHECK(bf16.first != first.first);
  CHECK(bf16.second != first.second);
  tensors[0].values.back() += 1;
  const auto last = sum_of(tensors);
  CHECK(last.first != first.first);
  CHECK(last.second != first.second);
}

}  // namespace base_checksum_test
