#include "lora/tokenizer/token_decoder.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace tokenizer_token_decoder_test {

using namespace lora;
using tokenizer::byte_of_token;
using tokenizer::TokenDecoder;
using Kind = TokenDecoder::Step::Kind;

namespace {

std::string decoded(std::vector<TokenDecoder::Step> steps, std::vector<std::string> tokens) {
  TokenDecoder decoder;
  for (auto& step : steps) decoder.add(std::move(step));
  return decoder(std::move(tokens));
}

}  // namespace

TEST_CASE("tokenizer_token_decoder: which tokens are bytes") {
  CHECK(byte_of_token("<0x0A>") == '\n');
  CHECK(byte_of_token("<0xff>") == '\xFF');
  CHECK(byte_of_token("<0xaF>") == '\xAF');
  CHECK(byte_of_token("<0x+5>") == '\x05');
  for (const char* const other : {"", "<0x0G>", "<0x0A", "<0x0A>>", "<0X0A>", "a0x0A>", "<0x0Ab", "<0x++>", "<0x5+>",
                                  "<0x \xC3>", "<0x/0>", "<0x:0>", "<0x@0>", "<0x`0>", "<0xg0>"})
    CHECK(byte_of_token(other) == std::nullopt);
}

TEST_CASE("tokenizer_token_decoder: bytes side by side are a text, or one U+FFFD each if they are none") {
  const auto bytes = [](std::vector<std::string> tokens) {
    return decoded({{.kind = Kind::bytes}}, std::move(tokens));
  };
  CHECK(bytes({"a", "<0xC3>", "<0xA9>", "b"}) == "a\u00E9b");
  CHECK(bytes({"<0xC3>", "<0xA9>", "<0xC3>"}) == "\uFFFD\uFFFD\uFFFD");
  CHECK(bytes({"<0xC3>", "a", "<0xA9>"}) == "\uFFFDa\uFFFD");
  CHECK(bytes({"<0xC3>", "", "<0xA9>"}) == "\uFFFD\uFFFD");
  CHECK(bytes({}).empty());
}

TEST_CASE("tokenizer_token_decoder: what is stripped or no mark depends on which tokens are one by then") {
  const TokenDecoder::Step spaces{.kind = Kind::replace, .from = "_", .to = " "}, fuse{.kind = Kind::fuse};
  const TokenDecoder::Step strip{.kind = Kind::strip, .from = " ", .count = 1};
  CHECK(decoded({spaces, fuse, strip}, {"__a", "_b"}) == " a b");
  CHECK(decoded({spaces, strip}, {"__a", "_b"}) == " ab");
  CHECK(decoded({spaces, fuse, {.kind = Kind::strip, .from = " ", .count = 5}}, {"__a", "_b"}) == "a b");
  CHECK(decoded({spaces, fuse, {.kind = Kind::strip, .from = " ", .count = 0}}, {"_a"}) == " a");
  CHECK(decoded({strip}, {"", " "}).empty());
  CHECK(decoded({{.kind = Kind::marks, .from = "_", .leading = true}}, {"__a_", "_b"}) == "a b");
  CHECK(decoded({{.kind = Kind::marks, .from = "_", .leading = false}}, {"__a_", "_b"}) == "  a  b");
  CHECK(decoded({{.kind = Kind::replace, .from = "aa", .to = "a"}}, {"aaaaa", "a"}) == "aaaa");
}

TEST_CASE("tokenizer_token_decoder: how long a text may become") {
  TokenDecoder decoder;
  CHECK(decoder.growth() == 1);
  decoder.add({.kind = Kind::replace, .from = "ab", .to = "abc"});
  decoder.add({.kind = Kind::fuse});
  CHECK(decoder.growth() == 2);
  for (int i = 0; i < 100; ++i) decoder.add({.kind = Kind::replace, .from = "a", .to = "aaa"});
  CHECK(decoder.growth() == std::size_t{1} << 32);
}

}  // namespace tokenizer_token_decoder_test
