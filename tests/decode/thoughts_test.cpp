// Reasoning is parted from an answer as it comes, in whatever pieces.

#include "lora/decode/thoughts.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <utility>

namespace thoughts_test {

namespace {

using namespace lora;
using decode::Thoughts;

/// All words of a text that comes in pieces of so many bytes.
std::pair<decode::Words, bool> parts_of(std::string_view text, std::size_t size, Thoughts::Begin begin) {
  Thoughts thoughts(begin);
  decode::Words all;
  const auto add = [&](const decode::Words& words) {
    all.reasoning += words.reasoning;
    all.content += words.content;
  };
  for (std::size_t at = 0; at < text.size(); at += size) add(thoughts.add(text.substr(at, size)));
  add(thoughts.finish());
  return {all, thoughts.reasoned()};
}

void check(std::string_view text, Thoughts::Begin begin, std::string_view reasoning, std::string_view content,
           bool reasoned) {
  CAPTURE(std::string(text));
  for (std::size_t size = 1; size <= text.size() + 1; ++size) {
    const auto [words, found] = parts_of(text, size, begin);
    CAPTURE(size);
    CHECK(words.reasoning == reasoning);
    CHECK(words.content == content);
    CHECK(found == reasoned);
  }
}

}  // namespace

TEST_CASE("thoughts: what stands between the marks is reasoning, without the line ends around, in any pieces") {
  using Begin = Thoughts::Begin;
  check("<think>\nA\n\nb\n</think>\n\nc\n", Begin::possible, "A\n\nb", "c\n", true);
  check("\n<think>a</think>b", Begin::possible, "a", "b", true);
  check("<think>\n\n</think>\n\nb", Begin::possible, "", "b", true);
  check("a <think>b</think>", Begin::possible, "", "a <think>b</think>", false);
  check("<thin", Begin::possible, "", "<thin", false);
  check("\nplain", Begin::possible, "", "\nplain", false);
  check("<think>a </thin b", Begin::possible, "a </thin b", "", true);
  check("<think>a\n", Begin::possible, "a", "", true);
  check("a\n</think>\n\nb</think>c", Begin::open, "a", "b</think>c", true);
  check("<think>a</think>b", Begin::absent, "", "<think>a</think>b", false);
}

TEST_CASE("thoughts: nothing waits that is certain") {
  Thoughts thoughts(Thoughts::Begin::possible);
  CHECK(thoughts.add("<think>a b").reasoning == "a b");
  CHECK(thoughts.add("\n").reasoning.empty());
  CHECK(thoughts.add("c").reasoning == "\nc");
  CHECK(thoughts.add("</think>d").content == "d");
  CHECK(thoughts.add("\n").content == "\n");

  Thoughts plain(Thoughts::Begin::possible);
  CHECK(plain.add("\n<th").content.empty());  // may still become the mark
  CHECK(plain.add("us").content == "\n<thus");
  CHECK(plain.add("<think>").content == "<think>");
  CHECK_FALSE(plain.reasoned());
  CHECK(Thoughts(Thoughts::Begin::possible).add("Hi").content == "Hi");
  CHECK(Thoughts(Thoughts::Begin::absent).add("<th").content == "<th");

  Thoughts opened(Thoughts::Begin::open);
  CHECK(opened.reasoned());
  CHECK(opened.add("a</thi").reasoning == "a");
  CHECK(opened.add("s\n").reasoning == "</this");
  CHECK(opened.add("</think>\n").content.empty());
  CHECK(opened.add("\nb</th").content == "b</th");
  CHECK(opened.finish().content.empty());
}

}  // namespace thoughts_test
