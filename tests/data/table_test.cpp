#include "lora/data/records/table.hpp"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "lora/data/records/dataset.hpp"
#include "lora/io/files/file.hpp"
#include "support/message_of.hpp"
#include "support/one_file.hpp"
#include "support/packed.hpp"
#include "support/temp_folder.hpp"

#ifdef LORA_WITH_CSV

namespace table_test {

using namespace lora;
using data::Dataset;
using data::DatasetOptions;
using data::RecordColumns;
using data::Sample;
using test::OneFile;
using test::turns_of;

namespace {

OneFile table(const std::string& text) { return OneFile(text, "d.csv"); }

}  // namespace

TEST_CASE("table: the first row names what the cells of the others are") {
  const OneFile alpaca = table("instruction,input,output\nI,X,O\n\"I, and\nmore\",,\"O \"\"2\"\"\"\r\n");
  CHECK(alpaca.open().size() == 2);
  CHECK(turns_of(alpaca.first()) == "user=I\nX|assistant=O|");
  CHECK(turns_of(alpaca.open()[1]) == "user=I, and\nmore|assistant=O \"2\"|");
  CHECK(alpaca.open()[1].where == alpaca.path.native() + ":3");
  CHECK(turns_of(table("prompt,completion,system\nP,C,S\n").first()) == "system=S|user=P|assistant=C|");
  CHECK(turns_of(table("answer,question\nA,Q").first()) == "user=Q|assistant=A|");
  CHECK(turns_of(table("instruction,input,output\n,X,O\n").first()) == "user=X|assistant=O|");
  CHECK(table("text\nplain\n\n\"\"\"quoted\"\"\"\n").open()[1].text == "\"quoted\"");
  CHECK(table("\xEF\xBB\xBFtext\nmarked\n").first().text == "marked");
  CHECK(table("\n\r\n text,text\nno,yes\n").first().text == "yes");
}

TEST_CASE("table: commas, semicolons or tabs, as the first row has them") {
  CHECK(turns_of(table("prompt;completion\nP, p;C\n").first()) == "user=P, p|assistant=C|");
  CHECK(turns_of(table("prompt\tcompletion\nP, p\tC;\n").first()) == "user=P, p|assistant=C;|");
  CHECK(turns_of(table("prompt,completion,\"more; or\tless\"\nP;,C,x\n").first()) == "user=P;|assistant=C|");
  CHECK(OneFile("text\na, b\n", "d.TSV").first().text == "a, b");
  CHECK(OneFile("text,more\na, b\n", "d.tsv").error().starts_with("d.tsv:2: a record with the keys text,more; "));
  CHECK(table("a,b;c\n1,2\n").error() ==
        "d.csv:1: the first row has commas and semicolons outside of quotes; expected one of these to separate the "
        "columns, and names that hold another in quotes");
}

TEST_CASE("table: lists stand in a cell as JSON") {
  CHECK(turns_of(table("system,messages\nS,\"[{\"\"role\"\":\"\"user\"\",\"\"content\"\":\"\"U\"\"},"
                       "{\"\"role\"\":\"\"assistant\"\",\"\"content\"\":\"\"A, b\"\"}]\"\n")
                     .first()) == "system=S|user=U|assistant=A, b|");
  CHECK(turns_of(
            table("conversations;tools\n[{\"from\":\"human\",\"value\":\"H\"},{\"from\":\"gpt\",\"value\":\"G\"}];\n")
                .first()) == "user=H|assistant=G|");
  CHECK(turns_of(table("query;response;history\nQ;R;[[\"a\",\"b\"]]\nQ;R;\n").first()) ==
        "user=a|assistant=b|user=Q|assistant=R|");
  const auto tools = table("prompt;completion;tools\nP;C;[{\"name\":\"f\",\"parameters\":{}}]\n").first();
  CHECK(tools.tools.size() == 1);
  const auto tokens = table("input_ids;labels;attention_mask\n[1, 2];[-100,2];\n").first();
  CHECK(tokens.tokens == std::vector<std::int32_t>{1, 2});
  CHECK(tokens.labels == std::vector<std::int32_t>{-100, 2});
  // What is no list of these records is a text, whatever it looks like.
  CHECK(table("text,labels,history\n[1],positive,[x\n").first().text == "[1]");
  CHECK(turns_of(table("prompt;completion\n[1];{\"a\": 1}\n").first()) == "user=[1]|assistant={\"a\": 1}|");

  CHECK(table("messages\n\"[{'role': 'user'}]\"\n")
            .error()
            .starts_with("d.csv:2: messages:1:3: syntax error while parsing object key - invalid literal"));
  CHECK(table("messages\n\"[{'role': 'user'}]\"\n").error().ends_with("; JSON has double quotes"));
  CHECK(table("messages,x\n,1\n").error() == "d.csv:2: \"messages\" is empty; expected a list as JSON");
  CHECK(table("messages\n7\n").error() == "d.csv:2: \"messages\" must be an array");
}

TEST_CASE("table: an empty cell is an empty text, or missing where no text is read") {
  CHECK(table("prompt,completion\nP,\n").error() == "d.csv:2: the record has no answer; \"completion\" is empty");
  CHECK(table("text,x\n\"\",1\n").error() == "d.csv:2: the text is empty");
  const OneFile texts = table("text,x\n,1\nT,2\n");
  CHECK(texts.open({.skip_empty_answers = true})[0].unanswered);
  CHECK(texts.open({.need_answer = false})[0].text.empty());
  CHECK(turns_of(table("prompt,completion,history,tools,weight\nP,C,,,\n").first()) == "user=P|assistant=C|");
  CHECK_FALSE(table("text,difficulty\nT,\n").first({.label_field = "difficulty"}).label.has_value());
  CHECK(table("text\nNA\nnull\nnan\n").open()[1].text == "null");  // as pandas wouldn't
}

TEST_CASE("table: marks and classes are taken as texts write them") {
  for (const std::string no : {"0", "false", "False", "FALSE", "0.0"})
    CHECK_FALSE(table("text,weight\nT," + no + "\n").first().learned);
  for (const std::string yes : {"1", "true", "True", "1.0", ""})
    CHECK(table("text,weight\nT," + yes + "\n").first().learned);
  CHECK(table("text,weight\nT,no\n").error() == "d.csv:2: \"weight\" is \"no\"; expected true, false, 0 or 1");
  CHECK(table("text;weight\nT;{\"a\": 1, \"a\": 2}\n").error().starts_with("d.csv:2: \"weight\" is \"{"));
  CHECK(table("text,weight\nT,2\n").error() == "d.csv:2: \"weight\" is 2; expected true, false, 0 or 1");
  CHECK(table("prompt,completion,label\nP,C,False\n").error().starts_with("d.csv:2: \"label\" is false, which marks"));
  const auto labeled = table("prompt,completion,label\nP,C,True\n");
  const auto labels = labeled.open();
  (void)labels[0];
  CHECK(labels.take_unused_fields().empty());
  CHECK(labeled.first().messages.size() == 2);
  CHECK(table("text,difficulty\nT,3\n").first({.label_field = "difficulty"}).label == "3");
  CHECK(table("text,weight\nT,TRUE\n").first({.label_field = "weight"}).label == "TRUE");
}

TEST_CASE("table: columns and tags say what its columns and roles are called, and unused ones are told") {
  const OneFile file = table("q;a;turns\nQ;A;[{\"who\":\"me\",\"says\":\"U\"},{\"who\":\"it\",\"says\":\"V\"}]\n");
  const auto open = [&](const RecordColumns& columns) {
    data::DataFile one(file.path.native());
    one.columns = columns;
    return Dataset::open(std::vector<data::DataFile>{one});
  };
  CHECK(turns_of(open({.columns = {{"prompt", "q"}, {"response", "a"}}})[0]) == "user=Q|assistant=A|");
  const auto turns =
      open({.columns = {{"messages", "turns"}},
            .tags = {{"role_tag", "who"}, {"content_tag", "says"}, {"user_tag", "me"}, {"assistant_tag", "it"}}});
  CHECK(turns_of(turns[0]) == "user=U|assistant=V|");
  (void)turns[0];
  CHECK(turns.take_unused_fields() == std::vector<std::string>{"a", "q"});
  CHECK(test::message_of<FormatError>([&] {
          (void)open({.columns = {{"prompt", "q"}, {"query", "x"}}});
        })
            .ends_with("d.csv:1: no column \"x\", which is the record's query by columns of its file; there are q, a, "
                       "turns"));

  const auto indexed = table(",text\n0,T\n").open();  // pandas' index
  CHECK(indexed[0].text == "T");
  CHECK(indexed.take_unused_fields() == std::vector<std::string>{"Unnamed: 0"});
  const OneFile twice_indexed = table(",Unnamed: 0,text\n0,0,T\n");
  const data::Dataset twice = twice_indexed.open();
  CHECK(twice[0].text == "T");
  CHECK(twice.take_unused_fields() == std::vector<std::string>{"Unnamed: 0", "Unnamed: 0.1"});
}

TEST_CASE("table: what spreadsheets leave around one is no part of it") {
  // Columns and rows in which something stood.
  const data::Dataset records = table("prompt,completion,,\nP,C,,\n,,,\n\"\",\"\"\nQ,D,\"\"\n,\n").open();
  CHECK(records.size() == 2);
  CHECK(turns_of(records[1]) == "user=Q|assistant=D|");
  CHECK(table("text\n\"\"\nT\n").open().size() == 2);  // of a single column an empty cell is a text, or a mistake
  // What separates the columns, in a line of its own.
  for (const std::string line : {"sep=;\n", "sep=;\r\n", "sep=;\r"}) {
    const auto said = table(line + "prompt;completion\nP, p;C\n");
    CHECK(turns_of(said.first()) == "user=P, p|assistant=C|");
    CHECK(said.first().where.ends_with("d.csv:3"));
  }
  CHECK(table("sep=;\n").error() == "d.csv: the file has no records");
  CHECK(table("sep=x\nT\n").error().starts_with("d.csv:2: a record with the keys sep=x; "));
}

TEST_CASE("table: TRL's lists of messages are those of JSON in a cell") {
  const std::string prompt = R"("[{""role"": ""user"", ""content"": ""P""}]")",
                    completion = R"("[{""role"": ""assistant"", ""content"": ""C""}]")";
  CHECK(turns_of(table("prompt,completion\n" + prompt + "," + completion + "\n").first()) == "user=P|assistant=C|");
  const std::string spread = "\"[\n  {\n    \"\"content\"\" : \"\"P\"\", \"\"role\"\": \"\"user\"\"}]\"";
  CHECK(turns_of(table("prompt,completion\n" + spread + "," + completion + "\n").first()) == "user=P|assistant=C|");
  CHECK(table("prompt,completion\n\"[{'role': 'user', 'content': 'P'}]\",C\n")
            .error()
            .ends_with("; JSON has double quotes"));
  CHECK(table("prompt,completion\n" + prompt + ",C\n").error().find("\"completion\" is no list of turns") !=
        std::string::npos);
  CHECK(turns_of(table("prompt,completion\n[{x: 1}],[{\n").first()) == "user=[{x: 1}]|assistant=[{|");
}

TEST_CASE("table: what is no table is told with file, line and column") {
  CHECK(table("prompt,completion\nP,C\nP\n").error() ==
        "d.csv:3:2: a row of 1 cell, expected 2, as many as the first row names; none is left for \"completion\"");
  CHECK(table("prompt,completion\nP,C\nP").error().starts_with("d.csv:3:2: a row of 1 cell, expected 2, "));
  CHECK(table("size 5\";text\n1;T\n").first().text == "T");  // of a name without quotes they are a part
  CHECK(table("prompt,completion\nP,\"C\n\",D\nP,C\n").error() ==
        "d.csv:3:3: a row of 3 cells, expected 2, as many as the first row names; what holds a separator stands in "
        "quotes");
  CHECK(table("text,a,text\nT,1,2\n").error() == "d.csv:1:8: column 3 is called \"text\", as column 1 is");
  CHECK(table("text,a,\nT,1,2\n").error() ==
        "d.csv:2:5: a row of 3 cells, expected 2, as many as the first row names; what holds a separator stands in "
        "quotes");
  CHECK(table("text,,a\nT,1,2\n").error() == "d.csv:1:6: column 2 has no name");
  CHECK(table("\"\"\nT\n").error() == "d.csv:1:1: column 1 has no name");
  CHECK(table("1+1?,2\n2+2?,4\n").error() ==
        "d.csv:2: a record with the keys 1+1?, 2; expected instruction and output, messages, conversations, prompt and "
        "completion, question and answer, query and response, input_ids and labels, or text; the first row of a table "
        "names its columns");
  for (const std::string nothing : {"", "\n \n", "text", "text\n\n"})
    CHECK(table(nothing).error() == "d.csv: the file has no records");
  CHECK(table("text\nT\n\"x\n").error() == "d.csv:3:1: a quote opens here that is never closed");
  CHECK(table("text\nT\nx\xFF\n").error() == "d.csv:3:2: invalid UTF-8; of a spreadsheet, save it as CSV UTF-8");
  CHECK(table("te\xE9t\nT\n").error() == "d.csv:1:3: invalid UTF-8; of a spreadsheet, save it as CSV UTF-8");
  CHECK(table(std::string("text\nT\0\n", 8)).error() == "d.csv:2:2: a zero byte; expected text");
  CHECK(table(std::string("\xFF\xFEt\0", 4)).error().starts_with("d.csv: the text is UTF-16; expected UTF-8"));
  CHECK(table("chosen,rejected,prompt\nA,B,P\n").error().starts_with("d.csv:2: chosen and rejected are preference"));
  CHECK(table(std::string("PAR1f\1\0\0\0PAR1", 13)).error().find("Parquet file") != std::string::npos);
  CHECK(table("PAR1,text\n1,T\n").first().text == "T");
  // As before there were tables, JSON is known by how it begins.
  CHECK(table("{\"text\": \"T\"}\n").first().text == "T");
  CHECK(table("[{\"text\": \"T\"}]\n").first().text == "T");
}

TEST_CASE("table: what is taken of a file, and which records are the same") {
  const std::string text = "text,n\nA,1\nB,2\n\"C\n\",3\nD,4\n";
  const OneFile file = table(text);
  CHECK(file.open({.max_samples = 3}).size() == 3);
  CHECK(file.open({.max_samples = 3})[2].text == "C\n");
  CHECK(file.open({.max_samples = 3}).bytes_of(2) >= 5);
  CHECK(OneFile(test::gzipped(text), "d.csv.gz").open()[3].text == "D");
  CHECK(OneFile(test::gzipped(text), "d.csv.gz").open().fingerprint() == file.open().fingerprint());
  CHECK(table("text,n\nA,1\n").open().fingerprint() == table("text,n\r\nA,1\r\n").open().fingerprint());
  CHECK(table("text,n\nA,1\n").open().fingerprint() != table("n,text\nA,1\n").open().fingerprint());

  const test::TempFolder folder;
  const std::string a = (folder.path() / "a.csv").native(), b = (folder.path() / "b.jsonl").native();
  io::write_file(a, text);
  io::write_file(b, std::string_view("{\"text\": \"E\"}\n"));
  const auto both = Dataset::open(std::vector<std::string>{a, b});
  CHECK(both.size() == 5);
  CHECK(both[4].text == "E");
  CHECK(both[3].where == a + ":6");
}

}  // namespace table_test

#endif
