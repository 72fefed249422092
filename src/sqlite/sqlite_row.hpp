#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "idempotency/detail/judge.hpp"
#include "idempotency/store.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::sqlite {

/// A record as it stands in the table, without its key.
struct Row {
  RecordFacts facts;
  std::uint32_t attempt = 0;
  Timestamp updated_at{};
  std::string reason;
  std::string trace;
  std::optional<std::string> result;
};

/// Whether the row has to be written back.
enum class RowChange : std::uint8_t { none, changed };

struct BeginDecision {
  BeginOutcome outcome;
  RowChange change = RowChange::none;
};
struct WriteDecision {
  WriteOutcome outcome = WriteOutcome::lost;
  RowChange change = RowChange::none;
};

/// Judges `begin` and applies the verdict to `row`, which is empty for a record that is not there.
/// When nothing changes, the row's result may have been moved into the outcome.
[[nodiscard]] BeginDecision decide_begin(std::optional<Row>& row, const BeginRequest& request,
                                         Timestamp now);

[[nodiscard]] WriteDecision decide_issue(std::optional<Row>& row, const IssueRequest& request,
                                         Timestamp now);

/// The same for the owner's writes.
[[nodiscard]] WriteDecision decide_complete(std::optional<Row>& row, const Ownership& by,
                                            const Completion& completion, Timestamp now);
[[nodiscard]] WriteDecision decide_fail(std::optional<Row>& row, const Ownership& by,
                                        const Failure& failure, std::chrono::milliseconds retention,
                                        Timestamp now);
[[nodiscard]] WriteDecision decide_doubt(std::optional<Row>& row, const Ownership& by,
                                         Timestamp now);
[[nodiscard]] WriteDecision decide_mark_effect(std::optional<Row>& row, const Ownership& by,
                                               Timestamp now);
[[nodiscard]] WriteDecision decide_renew(std::optional<Row>& row, const Ownership& by,
                                         std::chrono::milliseconds lease, Timestamp now);
[[nodiscard]] WriteDecision decide_release(std::optional<Row>& row, const Ownership& by,
                                           std::chrono::milliseconds retention, Timestamp now);
[[nodiscard]] WriteDecision decide_resolve(std::optional<Row>& row, const Record& seen,
                                           const Resolution& resolution, Timestamp now);

/// What look-ups give; nothing for a record past its retention.
[[nodiscard]] std::optional<Record> to_record(const Key& key, std::optional<Row> row,
                                              Timestamp now);

}  // namespace detail::sqlite
}  // namespace v0
}  // namespace idempotency
