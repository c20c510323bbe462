#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <set>
#include <string>

namespace {

/// What a listener need not listen to.
struct Silent : doctest::IReporter {
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_start(const doctest::TestCaseData&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};

unsigned cases_run = 0;

/// Counts the cases that the filters let through: a filter that matches nothing must not look like a success.
struct Counter : Silent {
  explicit Counter(const doctest::ContextOptions&) {}
  void test_run_end(const doctest::TestRunStats& stats) override { cases_run = stats.numTestCasesPassingFilters; }
};

/// Lists the cases as ctest reads them: `--list-test-cases --reporters=ctest --out=FILE`. The file is included where
/// `command` and `label` are set.
struct CtestList : Silent {
  explicit CtestList(const doctest::ContextOptions& options) : out_(*options.cout) {}

  void report_query(const doctest::QueryData& query) override {
    std::set<std::string> names;
    for (unsigned i = 0; i < query.num_data; ++i) {
      const std::string name = query.data[i]->m_name;
      if (!names.insert(name).second) out_ << "message(FATAL_ERROR [==[two test cases are called " << name << "]==])\n";
      std::string filter;
      for (const char c : name) {
        if (c == ',' || c == '\\') filter += '\\';
        filter += c;
      }
      out_ << "add_test([==[" << name << "]==] ${command} [==[--test-case=" << filter << "]==])\n"
           << "set_tests_properties([==[" << name << "]==] PROPERTIES LABELS ${label} TIMEOUT 600\n"
           << "                     ENVIRONMENT OMP_WAIT_POLICY=passive)\n";
    }
  }

 private:
  std::ostream& out_;
};

}  // namespace

DOCTEST_REGISTER_LISTENER("counter", 1, Counter);
DOCTEST_REGISTER_REPORTER("ctest", 1, CtestList);

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  const int result = context.run();
  if (context.shouldExit() || result != 0) return result;
  return cases_run == 0 ? 1 : 0;
}
