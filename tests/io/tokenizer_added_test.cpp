#include "lora/io/tokenizer_added.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

namespace tokenizer_added_test {

using namespace lora::io;

namespace {

/// The text cut up: plain parts as they are, tokens as [id:part].
std::string cut(const std::vector<AddedToken>& tokens, std::string_view text) {
  AddedTokenFinder finder;
  for (const AddedToken& token : tokens) finder.add(token);
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

TEST_CASE("tokenizer_added: white space on either side") {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "<l>", .lstrip = true},
                                          {.id = 2, .content = "<r>", .rstrip = true}};
  CHECK(cut(tokens, "a \u3000<l> b") == "(a)[1: \u3000<l>]( b)");
  CHECK(cut(tokens, "a <r> \nb") == "(a )[2:<r> \n](b)");
  CHECK(cut(tokens, "<r>  <l>") == "[2:<r>  ][1:<l>]");
  CHECK(cut(tokens, "  <l>") == "[1:  <l>]");
}

TEST_CASE("tokenizer_added: a single word is touched by no word character") {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "on", .single_word = true}};
  CHECK(cut(tokens, "on on. only \u00E9on _on") == "[1:on]( )[1:on](. only \u00E9on _on)");
}

}  // namespace tokenizer_added_test
