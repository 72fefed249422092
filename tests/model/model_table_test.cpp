// Keeps docs/model/transitions.pml equal to transition(): the model that spin checks uses the same table as the
// stores. After a change of the table, run this test with IDEMPOTENCY_REWRITE_MODEL_TABLE=1 and check the model.

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "idempotency/transition.hpp"

namespace idempotency {
namespace {

using std::string_view_literals::operator""sv;

// In the order of the enumerators; their number is checked below.
constexpr std::array phase_names{
    "absent"sv,           "processing"sv, "success"sv, "failed_retryable"sv,
    "failed_permanent"sv, "uncertain"sv,  "issued"sv};
constexpr std::array event_names{
    "begin"sv,          "begin_issued"sv,   "renew"sv, "mark_effect"sv, "complete"sv,
    "fail_retryable"sv, "fail_permanent"sv, "doubt"sv, "release"sv,     "resolve_success"sv,
    "resolve_failed"sv, "resolve_retry"sv,  "issue"sv};
constexpr std::array answer_names{"acquired"sv,  "in_progress"sv, "completed"sv, "failed"sv,
                                  "uncertain"sv, "stored"sv,      "lost"sv};
constexpr std::array fence_names{"keep"sv, "first"sv, "next"sv};
constexpr std::array owner_names{"keep"sv, "caller"sv};
constexpr std::array lease_names{"keep"sv, "start"sv, "clear"sv};

static_assert(phase_names.size() == static_cast<std::size_t>(Phase::issued) + 1);
static_assert(event_names.size() == static_cast<std::size_t>(Event::issue) + 1);
static_assert(answer_names.size() == static_cast<std::size_t>(Answer::lost) + 1);
static_assert(fence_names.size() == static_cast<std::size_t>(FenceStep::next) + 1);
static_assert(owner_names.size() == static_cast<std::size_t>(OwnerStep::caller) + 1);
static_assert(lease_names.size() == static_cast<std::size_t>(LeaseStep::clear) + 1);

template <class Names, class Enum>
std::string name_of(std::string_view prefix, const Names& names, Enum value) {
  return std::string(prefix) + "_" + std::string(names.at(static_cast<std::size_t>(value)));
}

template <class Names>
std::string mtype_of(std::string_view prefix, const Names& names) {
  std::string text = "mtype = {";
  std::string_view separator = " ";
  for (const std::string_view name : names) {
    text.append(separator).append(prefix).append("_").append(name);
    separator = ", ";
  }
  return text + " };\n";
}

std::string row_of(const Transition& row) {
  return "row(" + name_of("phase", phase_names, row.to) + ", " +
         name_of("answer", answer_names, row.answer) + ", " +
         name_of("fence", fence_names, row.fence) + ", " +
         name_of("owner", owner_names, row.owner) + ", " +
         name_of("lease", lease_names, row.lease) + ")";
}

/// What the table answers in one phase for one event, by standing, lease and mode.
using Cell = std::array<Transition, 8>;

Cell cell_of(Phase phase, Event event) {
  Cell cell;
  std::size_t at = 0;
  for (const Standing standing : {Standing::other, Standing::current}) {
    for (const LeaseStatus lease : {LeaseStatus::running, LeaseStatus::run_out}) {
      for (const RecordMode mode : {RecordMode::take_over, RecordMode::hold}) {
        cell.at(at++) = transition(phase, event, standing, lease, mode);
      }
    }
  }
  return cell;
}

constexpr std::array questions{"own"sv, "run_out"sv, "on_hold"sv};

/// The rows of `cell[first, first + size)`, asking no more questions than make a difference.
void append_rows(std::string& text, const std::string& condition, const Cell& cell,
                 std::size_t first, std::size_t size, std::size_t asked) {
  bool all_equal = true;
  for (std::size_t at = first; at < first + size; ++at) {
    all_equal = all_equal && cell.at(at) == cell.at(first);
  }
  if (all_equal) {
    text += "  :: " + condition + " -> " + row_of(cell.at(first)) + "\n";
    return;
  }
  const std::string question(questions.at(asked));
  const std::size_t half = size / 2;
  append_rows(text, condition + " && !(" + question + ")", cell, first, half, asked + 1);
  append_rows(text, condition + " && (" + question + ")", cell, first + half, half, asked + 1);
}

constexpr std::string_view preamble =
    R"(/* The table of include/idempotency/transition.hpp, written by the test ModelTable (tests/model). Do not edit:
 * change the table, then run the test with IDEMPOTENCY_REWRITE_MODEL_TABLE=1.
 *
 * transition_<event>(from, own, run_out, on_hold) sets next_*; every combination has one row. `own`: the caller is
 * the record's owner (for writes: at its fence; for resolve: the fence is the one seen). */
)";

constexpr std::string_view row_definition = R"(
hidden mtype next_phase, next_answer, next_fence, next_owner, next_lease;

inline row(phase_, answer_, fence_, owner_, lease_) {
  next_phase = phase_; next_answer = answer_; next_fence = fence_; next_owner = owner_; next_lease = lease_
}
)";

std::string render_table() {
  std::string text(preamble);
  text += mtype_of("phase", phase_names);
  text += mtype_of("answer", answer_names);
  text += mtype_of("fence", fence_names);
  text += mtype_of("owner", owner_names);
  text += mtype_of("lease", lease_names);
  text += row_definition;
  for (std::size_t event = 0; event < event_names.size(); ++event) {
    text += "\ninline transition_" + std::string(event_names.at(event)) +
            "(from, own, run_out, on_hold) {\n  if\n";
    for (std::size_t phase = 0; phase < phase_names.size(); ++phase) {
      const Cell cell = cell_of(static_cast<Phase>(phase), static_cast<Event>(event));
      const std::string condition =
          "from == " + name_of("phase", phase_names, static_cast<Phase>(phase));
      append_rows(text, condition, cell, 0, cell.size(), 0);
    }
    text += "  fi\n}\n";
  }
  return text;
}

std::string committed_table() {
  const std::ifstream file(IDEMPOTENCY_MODEL_TABLE, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    lines.push_back(line);
  return lines;
}

TEST(ModelTable, IsWhatTheModelUsesByteForByte) {
  const std::string rendered = render_table();
  if (std::getenv("IDEMPOTENCY_REWRITE_MODEL_TABLE") != nullptr) {
    std::ofstream(IDEMPOTENCY_MODEL_TABLE, std::ios::binary) << rendered;
  }

  const std::string committed = committed_table();

  EXPECT_EQ(lines_of(committed), lines_of(rendered))
      << "transition() and docs/model/transitions.pml differ; run this test with "
         "IDEMPOTENCY_REWRITE_MODEL_TABLE=1, then docs/model/check";
  EXPECT_EQ(committed, rendered);
}

TEST(ModelTable, GivesEveryCombinationOneRow) {
  std::size_t combinations = 0;
  for (std::size_t event = 0; event < event_names.size(); ++event) {
    for (std::size_t phase = 0; phase < phase_names.size(); ++phase) {
      std::string text;
      const Cell cell = cell_of(static_cast<Phase>(phase), static_cast<Event>(event));
      append_rows(text, "from", cell, 0, cell.size(), 0);
      for (const std::string& line : lines_of(text)) {
        std::size_t covered = cell.size();
        for (const std::string_view question : questions) {
          if (line.find("(" + std::string(question) + ")") != std::string::npos) covered /= 2;
        }
        combinations += covered;
      }
    }
  }

  EXPECT_EQ(combinations, event_names.size() * phase_names.size() * 8);
}

}  // namespace
}  // namespace idempotency
