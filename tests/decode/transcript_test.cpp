// Which turns of a conversation a model sees, by how many tokens its context has.

#include "lora/decode/transcript.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "support/byte_tokenizer.hpp"
#include "support/message_of.hpp"

namespace transcript_test {

namespace {

using namespace lora;
using decode::Transcript;

struct Subject {
  tokenizer::Tokenizer tokenizer = tokenizer::Tokenizer::from_json(test::byte_tokenizer_json(), "test");
  data::Encoder encoder{&tokenizer, data::ChatTemplate::named("chatml"), {}};

  std::string text(const Transcript::Prompt& prompt) const { return tokenizer.decode(prompt.ids); }
};

std::string turns_of(const std::vector<data::Message>& messages) {
  std::string text;
  for (const auto& message : messages) text += message.role + "=" + message.content + "|";
  return text;
}

}  // namespace

TEST_CASE("transcript: the system prompt stands before the turns, and the prompt ends where the answer begins") {
  const Subject s;
  Transcript talk(s.encoder, 0);
  CHECK(talk.longest() == 0);
  CHECK(Transcript(s.encoder, 7).longest() == 7);
  CHECK(talk.messages().empty());
  CHECK_FALSE(talk.ends_with("user"));
  talk.add({"user", "a"});
  CHECK(talk.ends_with("user"));
  CHECK_FALSE(talk.ends_with("assistant"));
  CHECK(turns_of(talk.messages()) == "user=a|");
  CHECK(s.text(talk.prompt(0)) == "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n");
  talk.set_system("S");
  talk.add({"assistant", "b"});
  talk.add({"user", "c"});
  CHECK(talk.system() == "S");
  CHECK(talk.turns() == 3);
  CHECK(turns_of(talk.messages()) == "system=S|user=a|assistant=b|user=c|");
  const auto prompt = talk.prompt(1'000'000);  // of any number of tokens
  CHECK(s.text(prompt) ==
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"
        "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n");
  CHECK(prompt.dropped == 0);
  CHECK(prompt.newly == 0);
  talk.take_back();
  CHECK(talk.turns() == 2);
  CHECK(talk.ends_with("assistant"));
  talk.clear();
  CHECK(talk.turns() == 0);
  CHECK(turns_of(talk.messages()) == "system=S|");
  talk.add({"robot", "x"});
  CHECK(test::message_of<FormatError>([&] { (void)talk.prompt(1); }) ==
        "conversation: turn 2 has the role \"robot\"; expected system, user, assistant or tool");
}

TEST_CASE(
    "transcript: whole questions with all that answers them are left out, and no more than there is no room for") {
  const Subject s;
  const std::vector<data::Message> turns = {{"user", "a"},  {"assistant", "b"}, {"tool", "t"},  {"assistant", "c"},
                                            {"user", "dd"}, {"assistant", "e"}, {"user", "fff"}};
  const auto fill = [&](Transcript& talk) {
    for (const auto& turn : turns) talk.add(turn);
  };
  const auto begun = [&](Index longest) {
    Transcript talk(s.encoder, longest);
    talk.set_system("S");
    fill(talk);
    return talk;
  };
  const auto length_from = [&](std::size_t first) {
    data::Sample sample;
    sample.messages = {{"system", "S"}};
    sample.messages.insert(sample.messages.end(), turns.begin() + static_cast<std::ptrdiff_t>(first), turns.end());
    return std::ssize(s.encoder.prompt(sample));
  };
  const Index all = length_from(0), two = length_from(4), one = length_from(6);
  const auto dropped = [&](Index longest) { return begun(longest).prompt(7).dropped; };
  CHECK(dropped(all + 7) == 0);
  CHECK(dropped(all + 6) == 4);
  CHECK(dropped(two + 7) == 4);
  CHECK(dropped(two + 6) == 6);
  CHECK(dropped(one + 1) == 6);  // of the last question alone a token's room is enough
  CHECK(test::message_of<FormatError>([&] { (void)dropped(one); }) ==
        concat("the message is too long: with what the template writes around it, it has ", one,
               " tokens, but all of the conversation may have ", one, ", its answer included"));

  auto talk = begun(two + 7);
  auto prompt = talk.prompt(7);
  CHECK((prompt.dropped == 4 && prompt.newly == 4));
  CHECK(s.text(prompt) ==
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\ndd<|im_end|>\n<|im_start|>assistant\ne<|im_end|>\n"
        "<|im_start|>user\nfff<|im_end|>\n<|im_start|>assistant\n");
  prompt = talk.prompt(7);
  CHECK((prompt.dropped == 4 && prompt.newly == 0));
  // Another last question: what was left out stays so.
  talk.take_back();
  talk.add({"user", "g"});
  prompt = talk.prompt(7);
  CHECK((prompt.dropped == 4 && prompt.newly == 0));
  prompt = talk.prompt(10);
  CHECK((prompt.dropped == 6 && prompt.newly == 2));
  CHECK(turns_of(talk.messages()) == "system=S|user=a|assistant=b|tool=t|assistant=c|user=dd|assistant=e|user=g|");
  talk.clear();
  fill(talk);
  prompt = talk.prompt(7);
  CHECK((prompt.dropped == 4 && prompt.newly == 4));
}

}  // namespace transcript_test
