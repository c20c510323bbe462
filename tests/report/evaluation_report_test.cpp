#include "lora/report/evaluation_report.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <utility>

namespace report_evaluation_test {

using namespace lora;
using namespace lora::report;

TEST_CASE("evaluation_report: names of models and files are text, and what an evaluation has not is left out") {
  const io::Json results = io::parse_json(R"({"model_name_or_path": "a_model", "adapter_name_or_path": null,
      "dataset": ["<b>.jsonl", "c|d.jsonl"], "template": "chatml", "dtype": "F32", "device": "cpu", "version": "1",
      "time": "now", "loss": 1, "perplexity": 2.718, "token_accuracy": 0.5, "labelled_tokens": 7, "records": 2,
      "cutoff_len": 2048, "datasets": [{"name": "b", "worst_records": []}]})",
                                          "results");
  const std::string text = evaluation_report(results);
  CHECK(
      text.starts_with("# Evaluation\n\n- model: a\\_model\n- data: \\<b>.jsonl\n- data: c\\|d.jsonl\n"
                       "- template: chatml\n- computed in F32 on cpu\n- lora 1, now\n"));
  CHECK(text.find("| loss | 1.0000 |\n| perplexity | 2.7180 |\n| token accuracy | 50.0 % |\n") != text.npos);
  CHECK(text.find("longer than 2048 tokens") != text.npos);
  CHECK(text.find("## Against") == text.npos);
  CHECK(text.find("## Data sets") == text.npos);
}

TEST_CASE("evaluation_report: parts: texts are safe in a cell, numbers have the digits that matter") {
  CHECK(report::detail::cell("a|b\\c`d<e*f_g[h") == "a\\|b\\\\c\\`d\\<e\\*f\\_g\\[h");
  CHECK(report::detail::cell("plain ]>#-!(x)") == "plain ]>#-!(x)");
  CHECK(report::detail::cell("two\nlines") == "two\\\\nlines");
  CHECK(report::detail::row({"a", "", "b"}) == "| a |  | b |\n");
  CHECK(report::detail::head({"a", "b", "c"}) == "| a | b | c |\n|---|---:|---:|\n");
  CHECK(report::detail::percent(0.12345) == "12.3 %");
  CHECK(report::detail::percent(1) == "100.0 %");
  CHECK(report::detail::signed_text(0.25) == "+0.2500");
  CHECK(report::detail::signed_text(0) == "+0.0000");
  CHECK(report::detail::signed_text(-1.23456) == "−1.2346");
  const std::pair<double, const char*> values[] = {{1, "1.0000"},
                                                   {0.5, "0.50000"},
                                                   {0.0123456, "0.012346"},
                                                   {0, "0.0000"},
                                                   {9.99994, "9.9999"},
                                                   {10, "10.000"},
                                                   {99999.4, "99999"},
                                                   {123456.7, "123457"},
                                                   {999999999, "999999999"},
                                                   {1234567890, "1.2346e+09"},
                                                   {1e300, "1e+300"},
                                                   {std::numeric_limits<double>::infinity(), "inf"},
                                                   {1e-7, "0.000000100"}};
  for (const auto& value : values) CHECK(report::detail::perplexity(value.first) == value.second);
}

}  // namespace report_evaluation_test
