#include "lora/tokenizer/added.hpp"

#include <doctest/doctest.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace tokenizer_added_test {

using namespace lora::tokenizer;

namespace {

/// The text cut up: plain parts as they are, tokens as [id:part].
std::string cut(const std::vector<AddedToken>& tokens, std::string_view text) {
  AddedTokenFinder finder;
  for (const AddedToken& token : tokens) finder.add(token);
  finder.finish();
  std::string result;
  finder.split(
      text,
      [&](std::size_t begin, std::size_t end) { result += "(" + std::string(text.substr(begin, end - begin)) + ")"; },
      [&](std::int32_t id, std::size_t begin, std::size_t end) {
        result += "[" + std::to_string(id) + ":" + std::string(text.substr(begin, end - begin)) + "]";
      });
  return result;
}

}  // namespace

TEST_CASE("tokenizer_added: the leftmost, of those the longest") {
  const std::vector<AddedToken> tokens = {
      {.id = 1, .content = "<a>"}, {.id = 2, .content = "<a>b"}, {.id = 3, .content = "<c"}};
  CHECK(cut(tokens, "x<a>y") == "(x)[1:<a>](y)");
  CHECK(cut(tokens, "<a>b<a><a") == "[2:<a>b][1:<a>](<a)");
  CHECK(cut(tokens, "<<c<c") == "(<)[3:<c][3:<c]");
  CHECK(cut(tokens, "") == "");
  CHECK(cut({}, "<a>") == "(<a>)");
}

TEST_CASE("tokenizer_added: tokens that were added after the last finish are an error, not overlooked") {
  AddedTokenFinder finder;
  finder.add({.id = 1, .content = "<a>"});
  const auto nothing = [](auto...) {};
  CHECK_THROWS_WITH_AS(finder.split("<a>", nothing, nothing),
                       "[tokenizer] a text was to be split before AddedTokenFinder::finish", lora::Error);
}

TEST_CASE("tokenizer_added: white space on either side") {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "<l>", .lstrip = true},
                                          {.id = 2, .content = "<r>", .rstrip = true}};
  CHECK(cut(tokens, "a \u3000<l> b") == "(a)[1: \u3000<l>]( b)");
  CHECK(cut(tokens, "a <r> \nb") == "(a )[2:<r> \n](b)");
  CHECK(cut(tokens, "<r>  <l>") == "[2:<r>  ][1:<l>]");
  CHECK(cut(tokens, "  <l>") == "[1:  <l>]");
}

TEST_CASE("tokenizer_added: white space that many tokens take is looked through once") {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "\n", .rstrip = true},
                                          {.id = 2, .content = "x", .lstrip = true, .rstrip = true}};
  CHECK(cut(tokens, "\n \n x \nb\n\u3000c") == "[1:\n \n ][1:\n ][2:x \n][1:\n](b)[1:\n\u3000](c)");
  AddedTokenFinder finder;
  for (const AddedToken& token : tokens) finder.add(token);
  finder.finish();
  const std::string text(3'000'000, '\n');  // looking through all that follows each of them would take hours
  std::size_t found = 0, to_the_end = 0;
  finder.split(
      text, [](std::size_t, std::size_t) {},
      [&](std::int32_t, std::size_t, std::size_t end) {
        ++found;
        if (end == text.size()) ++to_the_end;
      });
  CHECK(found == text.size());
  CHECK(to_the_end == text.size());
}

TEST_CASE("tokenizer_added: special tokens can be left in the text") {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "<a>", .special = true},
                                          {.id = 2, .content = "<b>"},
                                          {.id = 3, .content = "<a><b>", .special = true}};
  AddedTokenFinder finder;
  for (const AddedToken& token : tokens) finder.add(token);
  finder.finish(true);
  std::string parts;
  const std::string text = "<a>x<b><a><b>";
  finder.split(
      text, [&](std::size_t begin, std::size_t end) { parts += "(" + text.substr(begin, end - begin) + ")"; },
      [&](std::int32_t id, std::size_t, std::size_t) { parts += std::to_string(id); });
  CHECK(parts == "(<a>x)2(<a><b>)");  // as in the tokenizers library, the longest is left as a whole
}

TEST_CASE("tokenizer_added: a single word is touched by no word character") {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "on", .single_word = true}};
  CHECK(cut(tokens, "on on. only \u00E9on _on") == "[1:on]( )[1:on](. only \u00E9on _on)");
}

TEST_CASE("tokenizer_added: tokens within and across each other are found as by trying every place") {
  const std::vector<std::string> contents = {"a", "aa", "aab", "ab", "ba", "bab", "b", "cab", "abcabc", "bc", "cc"};
  for (unsigned chosen = 1; chosen < (1u << contents.size()); chosen += 3) {
    std::vector<AddedToken> tokens;
    for (std::size_t i = 0; i < contents.size(); ++i)
      if (chosen >> i & 1u) tokens.push_back({.id = static_cast<std::int32_t>(i), .content = contents[i]});
    std::mt19937 random(chosen);
    std::string text, expected, plain;
    for (int i = 0; i < 40; ++i) text += "abc"[random() % 3];
    const auto flush = [&] {
      if (!plain.empty()) expected += "(" + plain + ")";
      plain.clear();
    };
    for (std::size_t at = 0; at < text.size();) {
      const AddedToken* best = nullptr;
      for (const AddedToken& token : tokens)
        if (text.compare(at, token.content.size(), token.content) == 0 &&
            (best == nullptr || token.content.size() > best->content.size()))
          best = &token;
      if (best == nullptr) {
        plain += text[at++];
        continue;
      }
      flush();
      expected += "[" + std::to_string(best->id) + ":" + best->content + "]";
      at += best->content.size();
    }
    flush();
    REQUIRE(cut(tokens, text) == expected);
  }
}

TEST_CASE("tokenizer_added: a token that a long text nearly holds at every place") {
  const std::string many(100'000, 'a');
  const std::vector<AddedToken> tokens = {{.id = 1, .content = many + "b"}, {.id = 2, .content = "aaab"}};
  const std::string text(400'000, 'a');  // trying each place would take hours
  CHECK(cut(tokens, text) == "(" + text + ")");
  CHECK(cut(tokens, text + "b") == "(" + text.substr(many.size()) + ")[1:" + many + "b]");
}

TEST_CASE("tokenizer_added: a token without content is none") {
  AddedTokenFinder finder;
  CHECK(finder.empty());
  finder.add({.id = 1, .content = ""});
  CHECK(finder.empty());
  CHECK(cut({{.id = 1, .content = ""}}, "ab") == "(ab)");
  finder.add({.id = 1, .content = "a"});
  CHECK_FALSE(finder.empty());
}

TEST_CASE("tokenizer_added: white space that one token has taken is not the next one's, nor that of a text's ends") {
  const std::vector<AddedToken> both = {{.id = 1, .content = "x", .lstrip = true, .rstrip = true},
                                        {.id = 2, .content = "y", .lstrip = true}};
  CHECK(cut(both, "a x  y b") == "(a)[1: x  ][2:y]( b)");
  CHECK(cut(both, "x ") == "[1:x ]");
  CHECK(cut(both, " y y") == "[2: y][2: y]");
  CHECK(cut(both, "x\u00A0\u2003b") == "[1:x\u00A0\u2003](b)");
  CHECK(cut(both, "\u00E9\u00A0y") == "(\u00E9)[2:\u00A0y]");
}

TEST_CASE(
    "tokenizer_added: a single word may be touched by marks, but by no letter, digit or underline on either side") {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "on", .lstrip = true, .single_word = true}};
  for (const char* const text : {"on_", "1on", "on1", "\u4E2Don", "on\u4E2D", "onon"}) {
    CAPTURE(text);
    CHECK(cut(tokens, text) == "(" + std::string(text) + ")");
  }
  CHECK(cut(tokens, "-on-") == "(-)[1:on](-)");
  CHECK(cut(tokens, "a on") == "(a)[1: on]");
  CHECK(cut(tokens, "\u3000on\u3000") == "[1:\u3000on](\u3000)");
}

}  // namespace tokenizer_added_test
