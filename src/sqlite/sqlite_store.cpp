#include "idempotency/stores/sqlite.hpp"

#include <algorithm>
#include <utility>

#include "sqlite/sqlite_store_impl.hpp"

namespace idempotency {
inline namespace v0 {

using detail::sqlite::Reader;
using detail::sqlite::Records;
using detail::sqlite::Row;
using detail::sqlite::StoreImpl;
using std::chrono::milliseconds;

SqliteStore::SqliteStore(SqliteOptions options)
    : impl_(std::make_unique<StoreImpl>(std::move(options))) {}

SqliteStore::~SqliteStore() {
  // A child of fork() must not close what its parent uses: SQLite would drop the parent's locks.
  if (impl_->is_inherited()) static_cast<void>(impl_.release());
}

BeginOutcome SqliteStore::begin(const BeginRequest& request) {
  impl_->refuse_nested();
  std::optional<BeginOutcome> settled =
      impl_->read([&](Reader& reader) { return reader.records.peek(request, impl_->now()); });
  if (settled) return *std::move(settled);
  return impl_->write([&](Records& records, Timestamp now) { return records.begin(request, now); });
}

namespace {

/// `begin()`, or nothing when it is this record alone that cannot be read.
template <class Begin>
std::optional<BeginOutcome> unless_corrupt(Begin begin) {
  try {
    return begin();
  } catch (const Error& error) {
    if (error.code() != Errc::store_corrupt) throw;
    return std::nullopt;
  }
}

}  // namespace

/// What has to be written is written in one transaction, and so with one flush.
std::vector<std::optional<BeginOutcome>> SqliteStore::begin_many(
    const std::vector<BeginRequest>& requests) {
  impl_->refuse_nested();
  using Answers = std::vector<std::optional<BeginOutcome>>;
  Answers settled = impl_->read([&](Reader& reader) {
    Answers answers;
    for (const BeginRequest& request : requests) {
      answers.push_back(unless_corrupt([&] { return reader.records.peek(request, impl_->now()); }));
    }
    return answers;
  });
  const auto is_open = [](const std::optional<BeginOutcome>& answer) { return !answer; };
  if (std::none_of(settled.begin(), settled.end(), is_open)) return settled;
  return impl_->write([&](Records& records, Timestamp now) {
    Answers answers = settled;  // the write may be tried again
    for (std::size_t at = 0; at < answers.size(); ++at) {
      if (answers[at]) continue;
      answers[at] = unless_corrupt(
          [&] { return std::optional<BeginOutcome>(records.begin(requests[at], now)); });
    }
    return answers;
  });
}

WriteOutcome SqliteStore::issue(const IssueRequest& request) {
  detail::check_issue(request);
  return impl_->write_record(request.key, [&](std::optional<Row>& row, Timestamp now) {
    return detail::sqlite::decide_issue(row, request, now);
  });
}

WriteOutcome SqliteStore::complete(const Key& key, const Ownership& by,
                                   const Completion& completion) {
  return impl_->write_record(key, [&](std::optional<Row>& row, Timestamp now) {
    return decide_complete(row, by, completion, now);
  });
}

WriteOutcome SqliteStore::fail(const Key& key, const Ownership& by, const Failure& failure,
                               milliseconds retention) {
  return impl_->write_record(key, [&](std::optional<Row>& row, Timestamp now) {
    return decide_fail(row, by, failure, retention, now);
  });
}

WriteOutcome SqliteStore::doubt(const Key& key, const Ownership& by) {
  return impl_->write_record(
      key, [&](std::optional<Row>& row, Timestamp now) { return decide_doubt(row, by, now); });
}

WriteOutcome SqliteStore::mark_effect(const Key& key, const Ownership& by) {
  return impl_->write_record(key, [&](std::optional<Row>& row, Timestamp now) {
    return decide_mark_effect(row, by, now);
  });
}

WriteOutcome SqliteStore::renew(const Key& key, const Ownership& by, milliseconds lease) {
  return impl_->write_record(key, [&](std::optional<Row>& row, Timestamp now) {
    return decide_renew(row, by, lease, now);
  });
}

ReleaseOutcome SqliteStore::release(const Key& key, const Ownership& by,
                                    milliseconds retention) noexcept {
  try {
    const WriteOutcome outcome =
        impl_->write_record(key, [&](std::optional<Row>& row, Timestamp now) {
          return decide_release(row, by, retention, now);
        });
    return outcome == WriteOutcome::stored ? ReleaseOutcome::released : ReleaseOutcome::lost;
  } catch (const Error& error) {
    if (impl_->observer() != nullptr) {
      impl_->observer()->on_store_error(key, StoreCall::release, error, 1);
    }
    return ReleaseOutcome::unknown;
  } catch (const std::exception&) {
    return ReleaseOutcome::unknown;  // out of memory
  }
}

std::optional<Record> SqliteStore::find(const Key& key) {
  return impl_->read([&](Reader& reader) {
    return detail::sqlite::to_record(key, reader.records.load(key), impl_->now());
  });
}

std::vector<WriteOutcome> SqliteStore::renew_many(const std::vector<Renewal>& renewals) {
  if (renewals.empty()) return {};
  return impl_->write([&](Records& records, Timestamp now) {
    std::vector<WriteOutcome> outcomes;
    outcomes.reserve(renewals.size());
    for (const Renewal& renewal : renewals) {
      outcomes.push_back(records.write(renewal.key, [&](std::optional<Row>& row) {
        return decide_renew(row, renewal.ownership, renewal.lease, now);
      }));
    }
    return outcomes;
  });
}

}  // namespace v0
}  // namespace idempotency
