// Tokenizers of characters in the metadata of GGUF files: merges by rank as pieces with scores, read back as the same
// tokenizer, and what scores can't say.

#include "lora/tokenizer/gguf_pieces.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/tokenizer/tokenizer.hpp"
#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/temp_folder.hpp"
#include "support/tokenizer_files.hpp"

namespace gguf_pieces_test {

using namespace lora;
using io::Json;
using test::holds;
using test::message_of;
using tokenizer::Tokenizer;
using Kinds = std::vector<std::int32_t>;

namespace {

const std::string mark(tokenizer::Bpe::space_mark);

std::string marks(std::size_t count) {
  std::string text;
  while (text.size() < count * mark.size()) text += mark;
  return text;
}

/// How the merges of pieces are listed that have one score.
enum class Ties { by_piece, longest_left_first };

/// The merges of a vocabulary, as transformers makes them of a sentencepiece model: each two tokens that make a third
/// one, those first that make the token with the highest score; here that counts down with ids, but `tied` ones, as
/// Gemma's user-defined pieces, all have the highest.
/// Source   transformers, convert_slow_tokenizer.generate_merges, before and since version 4.45
Json merges_of(const Json& vocab, Ties ties = Ties::by_piece, const std::vector<std::string>& tied = {}) {
  struct Merge {
    bool tied;
    std::string left, right;
  };
  std::map<std::string, std::int64_t, std::less<>> ids;
  std::vector<std::pair<std::int64_t, std::string>> order;
  for (const auto& [token, id] : io::json_fields(vocab)) {
    ids[token] = id.get<std::int64_t>();
    order.emplace_back(id.get<std::int64_t>(), token);
  }
  std::sort(order.begin(), order.end());
  std::vector<Merge> merges;
  for (const bool first : {true, false})
    for (const auto& [id, token] : order) {
      if ((std::find(tied.begin(), tied.end(), token) != tied.end()) != first) continue;
      for (std::size_t at = 1; at < token.size(); ++at)
        if (ids.contains(token.substr(0, at)) && ids.contains(token.substr(at)))
          merges.push_back({first, token.substr(0, at), token.substr(at)});
    }
  if (ties == Ties::longest_left_first)
    std::stable_sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
      return a.tied && b.tied && std::pair(a.left.size(), a.right.size()) > std::pair(b.left.size(), b.right.size());
    });
  Json list = Json::array();
  for (const Merge& merge : merges) list.push_back(Json::array({merge.left, merge.right}));
  return list;
}

/// A tokenizer.json as Llama 2, Mistral 7B and Phi-3 have it.
Json llama_json() {
  static const Json made = [] {
    Json json = test::packed_json("characters.json.z")["tokenizer"];
    json["model"]["merges"] = merges_of(json["model"]["vocab"]);
    return json;
  }();
  return made;
}

Json replace_spaces() { return {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", mark}}; }

Json metaspace(const char* scheme) {
  return {{"type", "Metaspace"}, {"replacement", mark}, {"prepend_scheme", scheme}, {"split", false}};
}

Json added(std::int64_t id, const std::string& content, bool special, bool rstrip = false) {
  return {{"id", id},         {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", rstrip}, {"normalized", false}, {"special", special}};
}

constexpr std::size_t longest_run = 7;

/// One as Gemma has it: runs of spaces and other tokens are added, and the tab is in the place of its byte.
Json gemma_json(Ties ties = Ties::by_piece) {
  Json json = test::packed_json("characters.json.z")["tokenizer"];
  json["normalizer"] = replace_spaces();
  json["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"String", " "}}}, {"behavior", "MergedWithPrevious"}, {"invert", false}};
  std::map<std::string, std::int64_t> ids;
  for (const auto& [token, id] : io::json_fields(json["model"]["vocab"]))
    if (!token.starts_with(mark + mark)) ids[token == "<0x09>" ? "\t" : token] = id.get<std::int64_t>();
  std::vector<std::string> tied;
  for (std::size_t count = 2; count <= longest_run; ++count) tied.push_back(marks(count));
  for (const char* const token : {"<2mass>", "[@BOS@]", "<unused7>", "\n\n", "\t\t"}) tied.emplace_back(token);
  std::int64_t next = 0;
  for (const auto& entry : ids) next = std::max(next, entry.second + 1);
  for (const std::string& token : tied) {
    ids[token] = next;
    json["added_tokens"].push_back(added(next++, token, false));
  }
  Json vocab = Json::object();
  for (const auto& [token, id] : ids) vocab[token] = id;
  json["model"]["merges"] = merges_of(vocab, ties, tied);
  json["model"]["vocab"] = std::move(vocab);
  return json;
}

Tokenizer load(const Json& json) { return Tokenizer::from_json(io::to_text(json, -1), "t.json"); }

io::Gguf written(const Tokenizer& tokenizer, Index size, const std::string& model_name = "m") {
  const test::TempFolder temp;
  io::GgufMetadata metadata;
  metadata.add("general.name", model_name);
  tokenizer.add_to(metadata, size, {.model_name = model_name});
  io::GgufWriter writer(temp / "t.gguf", metadata, {});
  writer.commit();
  return io::Gguf::open(temp / "t.gguf");
}

std::string refused(const Json& json, const std::string& model_name = "m") {
  return message_of<FormatError>([&] { written(load(json), 2000, model_name); });
}

std::vector<std::string> texts() {
  auto all = test::packed_json("characters.json.z")["texts"].get<std::vector<std::string>>();
  for (std::size_t count = 1; count < 4 * longest_run; ++count) all.push_back("a" + std::string(count, ' ') + "the");
  return all;
}

/// `without`: texts with this are left out.
int differences(const Tokenizer& own, const Tokenizer& read, std::string_view without = std::string_view("\0", 1)) {
  int count = 0;
  for (const std::string& text : texts())
    count += text.find(without) == text.npos && own.encode(text, true).ids != read.encode(text, true).ids;
  return count;
}

}  // namespace

TEST_CASE("gguf pieces: merges become scores, tokens their kinds, and what is read back gives the same ids") {
  const auto own = load(llama_json());
  const auto file = written(own, own.vocab_size() + 1);
  CHECK(file.at<std::string>("tokenizer.ggml.model") == "llama");
  CHECK(file.at<std::string>("tokenizer.ggml.pre") == "default");
  CHECK(file.at<bool>("tokenizer.ggml.add_space_prefix"));
  CHECK(file.at<bool>("tokenizer.ggml.add_bos_token"));
  CHECK(file.at<std::int32_t>("tokenizer.ggml.unknown_token_id") == 0);
  CHECK_FALSE(file.has("tokenizer.ggml.merges"));
  const auto kinds = file.at<Kinds>("tokenizer.ggml.token_type");
  CHECK(Kinds(kinds.begin(), kinds.begin() + 4) == Kinds{2, 3, 3, 6});
  CHECK(std::count(kinds.begin(), kinds.end(), 6) == 256);
  CHECK(kinds.back() == 5);
  const auto scores = file.at<std::vector<float>>("tokenizer.ggml.scores");
  const auto score = [&](std::string_view token) { return scores[static_cast<std::size_t>(own.id_of(token).value())]; };
  const auto first = own.id_of(llama_json()["model"]["merges"][0][0].get<std::string>() +
                               llama_json()["model"]["merges"][0][1].get<std::string>());
  REQUIRE(first);
  CHECK(scores[static_cast<std::size_t>(*first)] == 0);
  CHECK(scores[static_cast<std::size_t>(*first) + 1] == -1);
  CHECK(score("<0x41>") == 0);
  CHECK(score("<s>") == -1000);
  CHECK(score(marks(2)) == 1 + score(marks(4)));
  CHECK(score("a") < score(marks(8)));  // no merge makes it
  CHECK(scores.back() == -10000);
  const test::Quiet quiet;
  const auto read = Tokenizer::from_gguf(file);
  CHECK(differences(own, read) == 0);
  CHECK(read.vocab_size() == own.vocab_size());  // without what fills it up
}

TEST_CASE("gguf pieces: where spaces are put before texts is said, or told if a file can't say it") {
  Json json = llama_json();
  const auto adds = [&](const char* scheme) {
    json["normalizer"] = nullptr;
    json["pre_tokenizer"] = metaspace(scheme);
    return written(load(json), 2000).at<bool>("tokenizer.ggml.add_space_prefix");
  };
  const test::Quiet quiet;
  CHECK_FALSE(adds("never"));
  CHECK(quiet.text.empty());
  CHECK(adds("always"));
  CHECK(adds("first"));
  CHECK(quiet.text ==
        "t.json: this tokenizer puts a space before texts without one alone, a GGUF file's before every text behind a "
        "special token: ids there may differ\n"
        "t.json: this tokenizer puts a space before the first text alone, a GGUF file's before every text behind a "
        "special token: ids there may differ\n");
  json["pre_tokenizer"] = metaspace("never");
  const auto own = load(json);
  CHECK(differences(own, Tokenizer::from_gguf(written(own, 2000))) == 0);
}

TEST_CASE("gguf pieces: Gemma's runs of spaces are cut as its merges do, in both orders that files have them in") {
  for (const Ties ties : {Ties::by_piece, Ties::longest_left_first}) {
    const test::Quiet quiet;
    const auto own = load(gemma_json(ties));
    const auto file = written(own, own.vocab_size());
    CHECK_FALSE(file.at<bool>("tokenizer.ggml.add_space_prefix"));
    const auto tokens = file.at<std::vector<std::string>>("tokenizer.ggml.tokens");
    const auto kinds = file.at<Kinds>("tokenizer.ggml.token_type");
    const auto kind = [&](std::string_view token) {
      const auto id = static_cast<std::size_t>(own.id_of(token).value());
      return std::pair(tokens[id], kinds[id]);
    };
    CHECK(kind(marks(2)) == std::pair(marks(2), 1));
    CHECK(kind("\t") == std::pair(std::string("<0x09>"), 6));
    CHECK(kind("\n\n") == std::pair(std::string("\n\n"), 4));
    CHECK(kind("\t\t") == std::pair(std::string("\t\t"), 4));
    for (const char* const token : {"<2mass>", "[@BOS@]", "<unused7>"})
      CHECK(kind(token) == std::pair(std::string(token), 3));
    // Marks that a text has itself are an added token beside spaces, and in a file's tokenizer spaces like these.
    CHECK(differences(own, Tokenizer::from_gguf(file), marks(2)) == 0);
  }
}

TEST_CASE("gguf pieces: an added token that the embedding lacks is left out, and told; a piece is refused") {
  Json json = llama_json();
  const auto size = static_cast<Index>(load(json).vocab_size());
  json["added_tokens"].push_back(added(size, "<image>", true));
  const test::Quiet quiet;
  CHECK(written(load(json), size).at<std::vector<std::string>>("tokenizer.ggml.tokens").size() ==
        static_cast<std::size_t>(size));
  CHECK(quiet.text ==
        concat("t.json: the added token \"<image>\" is left out: the model's embedding has ", size, " rows\n"));
  json["added_tokens"].push_back(added(size + 1, "<more>", false));
  written(load(json), size);
  CHECK(holds(quiet.text, "the added token \"<image>\" (and 1 more) is left out"));
  CHECK(message_of<FormatError>([&] { written(load(json), size - 1); }) ==
        concat("t.json: has ", size, " tokens, but the model's embedding ", size - 1, " rows"));
}

TEST_CASE("gguf pieces: tokens of Phi-3 take white space behind them along, as llama.cpp knows by the model's name") {
  Json json = llama_json();
  json["added_tokens"][2] = added(2, "</s>", false, true);
  const auto size = static_cast<std::int64_t>(load(json).vocab_size());
  json["added_tokens"].push_back(added(size, "<|endoftext|>", true));
  json["added_tokens"].push_back(added(size + 1, "<|user|>", true, true));
  const auto own = load(json);
  const test::Quiet quiet;
  for (const char* const name : {"Phi-3.5-mini-instruct", "my-phi3"}) {
    const auto read = Tokenizer::from_gguf(written(own, own.vocab_size(), name));
    const test::TempFolder saved;
    read.save(saved.path());
    const auto again = Tokenizer::from_folder(saved.path());
    for (const char* const text : {"<|user|>\n a", "a</s>  </s>b", "<s>a<|endoftext|>b<|user|> "}) {
      CAPTURE(text);
      CHECK(own.encode(text, true).ids == read.encode(text, true).ids);
      CHECK(own.encode(text, true).ids == again.encode(text, true).ids);
    }
    CHECK(own.special_tokens() == again.special_tokens());
  }
  CHECK(quiet.text.empty());
  CHECK(holds(refused(json, "phi-4"),
              "\" has rstrip, which a GGUF file can't say; expected tokens that are found "
              "wherever they stand, or a model with phi-3 in its name, whose tokens have rstrip in llama.cpp"));
  json["added_tokens"][2] = added(2, "</s>", false, false);
  written(load(json), own.vocab_size(), "phi-3");
  CHECK(quiet.text ==
        "t.json: the added token \"</s>\" has no rstrip, but in llama.cpp tokens of a model called phi-3 have it: ids "
        "of white space behind may differ\n");
}

TEST_CASE("gguf pieces: the class of a folder may take the unknown token from the file, and names it") {
  const test::TempFolder temp;
  io::write_json(temp / "tokenizer.json", llama_json());
  io::write_file(temp / "tokenizer_config.json",
                 R"({"tokenizer_class": "LlamaTokenizer", "add_prefix_space": false, "legacy": true})");
  const test::Quiet quiet;
  const auto own = Tokenizer::from_folder(temp.path());
  const auto file = written(own, own.vocab_size());
  CHECK(file.at<std::int32_t>("tokenizer.ggml.unknown_token_id") == 0);
  CHECK_FALSE(file.at<bool>("tokenizer.ggml.add_space_prefix"));
  CHECK(differences(own, Tokenizer::from_gguf(file)) == 0);
}

TEST_CASE("gguf pieces: merges that scores can't say are refused, with their ranks and tokens") {
  const std::string can_t = ", which a GGUF file can't say; expected ";
  // As the tokenizers library trains a vocabulary: each token has the one merge that made it.
  CHECK(holds(refused(test::packed_json("characters.json.z")["tokenizer"]),
              "\", which together are a token" + can_t +
                  "one for every two such tokens, as files have that are made of a sentencepiece model"));
  Json json = llama_json();
  Json& merges = json["model"]["merges"];
  const auto pair = [&](std::size_t rank) {
    return concat("of \"", merges[rank][0].get<std::string>(), "\" and \"", merges[rank][1].get<std::string>(), "\"");
  };
  const auto whole = [&](std::size_t rank) {
    return merges[rank][0].get<std::string>() + merges[rank][1].get<std::string>();
  };
  // A merge that is moved away from the others that make its token.
  std::size_t rank = 1;
  while (whole(rank) != whole(rank - 1) || merges[rank][1].get<std::string>().size() != 1) ++rank;
  const Json moved = merges[rank];
  merges.erase(rank);
  CHECK(holds(refused(json), concat("no merge joins \"", moved[0].get<std::string>(), "\" and \"",
                                    moved[1].get<std::string>(), "\", which together are a token")));
  merges.push_back(moved);
  const std::size_t last = merges.size() - 1;
  CHECK(refused(json) == concat("t.json: merge ", last, ", ", pair(last),
                                ", comes behind merges that make other tokens", can_t,
                                "it beside the other merges that make \"", whole(last), "\""));
}

TEST_CASE("gguf pieces: runs of spaces whose merges lie apart are refused where scores would cut them otherwise") {
  const auto refused_with = [](const std::vector<std::pair<int, int>>& run_merges, bool split_by_others,
                               bool in_words) {
    Json json = llama_json();
    Json& vocab = json["model"]["vocab"];
    const auto next = static_cast<std::int64_t>(load(json).vocab_size());
    vocab[marks(3)] = next;
    if (in_words) vocab[marks(2) + "a"] = next + 1;
    Json merges = Json::array(), others = merges_of(vocab), runs = Json::array();
    for (const Json& merge : others)
      if ((merge[0].get<std::string>() + merge[1].get<std::string>()).find_first_not_of(mark) != std::string::npos)
        merges.push_back(merge);
    for (const auto& [left, right] : run_merges)
      runs.push_back(Json::array({marks(static_cast<std::size_t>(left)), marks(static_cast<std::size_t>(right))}));
    Json all = Json::array();
    if (split_by_others) all.push_back(runs[0]);
    for (const Json& merge : merges) all.push_back(merge);
    for (std::size_t i = split_by_others ? 1 : 0; i < runs.size(); ++i) all.push_back(runs[i]);
    json["model"]["merges"] = all;
    const test::Quiet quiet;
    return refused(json);
  };
  using Merges = std::vector<std::pair<int, int>>;
  // Of 8, 4, 3 and 2, as transformers lists tied ones: the longer left part first, and of these the longer right part.
  const Merges listed{{4, 4}, {3, 1}, {2, 2}, {2, 1}, {1, 3}, {1, 2}, {1, 1}};
  CHECK(refused_with(listed, false, false) == "nothing was thrown");
  CHECK(holds(refused_with(listed, true, false), "comes behind merges that make other tokens"));
  CHECK(holds(refused_with(listed, false, true), "comes behind merges that make other tokens"));
  // Of 5 spaces all 1 and 1 are joined before 2 and 1 are, which leaves 2 and 3; by scores 2 and 1 go first.
  const Merges two_and_three{{1, 2}, {1, 1}, {2, 1}, {2, 2}, {3, 1}, {1, 3}, {4, 4}};
  CHECK(refused_with(two_and_three, false, false) ==
        "t.json: the merges cut 5 spaces in a row otherwise than scores would, which a GGUF file can't say; expected "
        "merges by which longer tokens of spaces come first, or that stand side by side for each");
}

TEST_CASE("gguf pieces: what stands for unknown characters, and what rewrites texts, is refused in one sentence") {
  const std::string can_t = ", which a GGUF file can't say; expected ";
  const auto with = [](const char* pointer, const Json& value) {
    Json json = llama_json();
    json[Json::json_pointer(pointer)] = value;
    const test::Quiet quiet;
    return refused(json);
  };
  CHECK(with("/model/byte_fallback", false) ==
        "t.json: characters without a token become no bytes" + can_t + "byte_fallback true");
  CHECK(with("/model/ignore_merges", true) ==
        "t.json: a word that is a token stays whole whatever merges" + can_t + "ignore_merges false");
  CHECK(with("/model/unk_token", nullptr) == "t.json: the vocabulary has no unk_token" + can_t + "one");
  Json json = llama_json();
  json["model"]["vocab"].erase("<0xC3>");
  CHECK(refused(json) == "t.json: no token stands for the byte <0xC3>" + can_t + "tokens <0x00> to <0xFF>");

  json = llama_json();
  json["model"]["vocab"]["<0x0A>" + mark] = load(json).vocab_size();
  json["model"]["merges"].insert(json["model"]["merges"].begin(), Json::array({"<0x0A>", mark}));
  CHECK(refused(json) == "t.json: merge 0, of \"<0x0A>\" and \"" + mark +
                             "\", has \"<0x0A>\", which stands for what has no token" + can_t + "merges of characters");

  json = llama_json();
  const auto next = static_cast<std::int64_t>(load(json).vocab_size());
  json["added_tokens"].push_back(added(next, mark + "x", false));
  CHECK(refused(json) == "t.json: the added token \"" + mark + "x\" has U+2581, which stands for spaces" + can_t +
                             "a token without, or spaces alone that merges make");
  json["added_tokens"].back() = added(next, marks(5), false);  // which no merge makes
  CHECK(holds(refused(json), "has U+2581"));
  json["added_tokens"].back() = added(load(llama_json()).id_of(marks(2)).value(), marks(2), true);
  CHECK(holds(refused(json), "has U+2581"));
  json["added_tokens"].back() = added(next, "<n>", true);
  json["added_tokens"].back()["normalized"] = true;
  CHECK(refused(json) == concat("t.json: the added token ", next, " is found as the normalizer writes it, \"", mark,
                                "<n>\"", can_t, "\"normalized\" false"));

  CHECK(with("/pre_tokenizer", {{"type", "Metaspace"}, {"replacement", mark}}) ==
        "t.json: the pre_tokenizer cuts texts into words" + can_t + "none, or Metaspace with \"split\" false");
  CHECK(holds(with("/normalizer", {{"type", "NFC"}}),
              "t.json: the normalizer (NFC) and the pre_tokenizer () rewrite texts" + can_t +
                  "marks for spaces, by a normalizer or by Metaspace"));
  CHECK(holds(with("/normalizer", nullptr), "the normalizer () and the pre_tokenizer () rewrite texts"));
}

}  // namespace gguf_pieces_test
