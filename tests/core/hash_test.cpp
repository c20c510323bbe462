#include "lora/core/hash.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace hash_test {

using namespace lora;

TEST_CASE("hash: texts give the known answers of FNV-1a") {
  // test_fnv.c of its authors
  static_assert(text_hash("") == 0xCBF29CE484222325u);
  CHECK(text_hash("a") == 0xAF63DC4C8601EC8Cu);
  CHECK(text_hash("foobar") == 0x85944171F73967E8u);
  CHECK(text_hash("\xFF") == (0xCBF29CE484222325u ^ 0xFFu) * 0x100000001B3u);  // bytes count as unsigned
}

TEST_CASE("hash: bytes give the published values of XXH64") {
  CHECK(checksum_text(checksum(std::string_view(""))) == "ef46db3751d8e999");
  CHECK(checksum_text(checksum(std::string_view("a"))) == "d24ec4f1a98c6e5b");
  CHECK(checksum_text(checksum(std::string_view("abc"))) == "44bc2cf5ad770999");
  CHECK(checksum_text(checksum(std::string_view("Nobody inspects the spammish repetition"))) == "fbcea83c8a378bf1");
}

TEST_CASE("hash: every bit of every length counts in a checksum") {
  for (const std::size_t size : {1u, 3u, 4u, 7u, 8u, 31u, 32u, 33u, 64u, 77u}) {
    std::string text(size, 'x');
    const auto sum = checksum(text);
    CHECK(sum != checksum(text + 'x'));
    for (std::size_t i = 0; i < size; ++i)
      for (int bit = 0; bit < 8; ++bit) {
        text[i] = static_cast<char>(text[i] ^ (1 << bit));
        CHECK(checksum(text) != sum);
        text[i] = static_cast<char>(text[i] ^ (1 << bit));
      }
  }
}

TEST_CASE("hash: a checksum is the same in whatever pieces the bytes come") {
  std::string text;
  for (int i = 0; i < 331; ++i) text += static_cast<char>(i * i + 7 * i);
  const auto bytes = std::as_bytes(std::span(text));
  for (const std::size_t piece : {1u, 3u, 31u, 32u, 33u, 64u, 100u, 330u}) {
    CAPTURE(piece);
    Checksum sum;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      sum.add(bytes.subspan(at, std::min(piece, bytes.size() - at)));
      sum.add({});
    }
    CHECK(sum.value() == checksum(bytes));
  }
}

TEST_CASE("hash: CRC-32C is the standard's") {
  // RFC 3720, appendix B.4
  CHECK(crc32c(std::string(32, '\0')) == 0x8A9136AAu);
  CHECK(crc32c(std::string(32, '\xFF')) == 0x62A8AB43u);
  CHECK(crc32c("123456789") == 0xE3069283u);
}

// Checkpoints hold it: with another value no earlier run goes on.
TEST_CASE("hash: the fingerprint of records stays what earlier versions wrote") {
  Fingerprint fingerprint(2);
  for (const char* record : {R"({"text":"one"})", R"({"text":"twenty-two"})"}) fingerprint.add(record);
  CHECK(fingerprint.value() == 0xBEF856D4BB572876u);
  CHECK(Fingerprint(1).value() != Fingerprint(2).value());
}

// By another implementation, which gives the published values above.
TEST_CASE("hash: long byte strings give the values of XXH64") {
  std::string bytes;
  for (int i = 0; i < 127; ++i) bytes += static_cast<char>(i);
  CHECK(checksum_text(checksum(std::string_view("abcdefghijklmnopqrstuvwxyz"))) == "cfe1f278fa89835c");
  CHECK(checksum_text(checksum(bytes.substr(0, 64))) == "f7c67301db6713f0");
  CHECK(checksum_text(checksum(bytes)) == "464d085810ce0199");
}

TEST_CASE("hash: the text of a checksum has sixteen digits") {
  CHECK(checksum_text(0) == "0000000000000000");
  CHECK(checksum_text(0x0BFBBC8D2C79F71Eu) == "0bfbbc8d2c79f71e");
  CHECK(checksum_text(0x0123456789ABCDEFu) == "0123456789abcdef");
}

TEST_CASE("hash: a record of whole words, or of nothing, has its part in a fingerprint") {
  Fingerprint fingerprint(3);
  for (const char* record : {"", "12345678", "0123456789abcdef!"}) fingerprint.add(record);
  CHECK(fingerprint.value() == 0x263E3D9741E3DBFAu);
}

}  // namespace hash_test
