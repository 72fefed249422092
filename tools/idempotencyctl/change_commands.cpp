#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <idempotency/operations/purger.hpp>
#include <iostream>
#include <iterator>
#include <vector>

#include "audit.hpp"
#include "commands.hpp"
#include "settle.hpp"
#include "stop_at_signals.hpp"
#include "store_access.hpp"
#include "text.hpp"

namespace idempotencyctl {

using std::chrono::milliseconds;
using Verdict = idem::Resolution::Verdict;

namespace {

idem::Record record_of(idem::AnyStore& store, const idem::Key& key) {
  std::optional<idem::Record> record = store.find(key);
  if (!record) throw Ending(Exit::absent, "there is no record of " + printable(key.text()));
  return *std::move(record);
}

/// What a person is told of a record that was changed.
std::string words_of(const std::optional<idem::Record>& record) {
  if (!record) return "gone now";
  const bool is_free = record->state == idem::RecordState::failed && record->failure &&
                       record->failure->retryability == idem::Retryability::retryable;
  if (is_free) return "free for the next call";
  return std::string(idem::to_string(record->state)) + " now";
}

/// Why a record was not changed after all: its owner came back, or another has settled it.
Ending moved(const OpenedStore& store, const idem::Key& key) {
  const std::optional<idem::Record> record = store->find(key);
  std::string now = "it is gone";
  if (record) {
    const bool is_held = record->state == idem::RecordState::processing && record->lease_until;
    now = "it is " + std::string(idem::to_string(record->state)) + " at fence " +
          std::to_string(record->ownership.fence) +
          (is_held ? ", and its lease runs until " + to_text(*record->lease_until) : "");
  }
  return {Exit::refused, "nothing was changed: the record has moved; " + now};
}

Exit tell(const Settings& settings, const OpenedStore& store, const idem::Key& key, bool changed) {
  if (!changed) throw moved(store, key);
  std::optional<idem::Record> record;
  try {
    record = store->find(key);
  } catch (const idem::Error& error) {  // what was asked for is done
    std::cerr << "idempotencyctl: it was changed, but cannot be shown: " << error.what() << '\n';
    return Exit::done;
  }
  if (settings.json) {
    std::cout << line_of({{"changed", true}, {"record", record ? to_json(*record) : Json(nullptr)}})
              << std::endl;
  } else {
    std::cout << printable(key.text()) << " is " << words_of(record) << std::endl;
  }
  return Exit::done;
}

std::string question_of(const idem::Record& record, const ResolveOptions& options) {
  std::string question = "Settle " + printable(record.key.text()) + ", which is " +
                         std::string(idem::to_string(record.state)) + " at fence " +
                         std::to_string(record.ownership.fence) + ", as ";
  if (options.failed) return question + "failed for good?";
  if (options.success) {
    return question + (has_result(options) ? "succeeded, with a result?"
                                           : "succeeded, without a result (later calls get none)?");
  }
  return question +
         "not done, so that the next call runs it? Only when no request of it can be on its way "
         "any "
         "more.";
}

std::string release_question_of(const Shown& shown) {
  const bool may_be_at_work = !idem::is_unsettled(shown.record, shown.at);
  return "Take " + printable(shown.record.key.text()) + " from its owner, " +
         (may_be_at_work ? "which may be at work and may do its effect all the same"
                         : "whose lease has run out") +
         ", so that the next call runs it?";
}

Json json_of(const idem::PurgeReport& report) {
  return {{"removed", report.removed},
          {"batches", report.batches},
          {"failures", report.failures},
          {"milliseconds", report.took.count()},
          {"complete", !report.ended_early}};
}

}  // namespace

Exit resolve(const Settings& settings, const ResolveOptions& options) {
  const idem::Key key = parse_key(options.key);
  check_reason(options.reason);
  if (options.failed && options.failed->starts_with("--")) {
    throw Ending(Exit::usage, "'" + printable(*options.failed) +
                                  "' is an option and no text that later calls should get");
  }
  const idem::Resolution resolution = resolution_of(options, key);
  const milliseconds margin =
      options.margin.empty() ? default_margin : parse_duration(options.margin);
  const auto store = open(settings);
  const idem::Record seen = record_of(*store, key);
  if (options.fence != 0 && seen.ownership.fence != options.fence) {
    throw Ending(Exit::refused, "nothing was changed: the record is at fence " +
                                    std::to_string(seen.ownership.fence));
  }
  const idem::Timestamp now = store.now();
  check_unsettled(seen, now);
  if (options.retry && !options.force) check_retry(seen, now, margin);
  const Audit audit(settings);
  confirm(settings, question_of(seen, options));
  const bool changed =
      settle(audit, *store, seen, resolution,
             {.command = options.force ? "resolve --force" : "resolve", .why = options.reason});
  return tell(settings, store, key, changed);
}

Exit release(const Settings& settings, const ReleaseOptions& options) {
  const idem::Key key = parse_key(options.key);
  check_reason(options.reason);
  const auto store = open(settings);
  const Shown shown{record_of(*store, key), store.now(), policy_of(options.policies, key)};
  check_release(shown, options.force ? Doubt::accept : Doubt::refuse);
  const Audit audit(settings);
  confirm(settings, release_question_of(shown));
  const bool changed = release_seen(
      audit, store, shown,
      {.command = options.force ? "release --force" : "release", .why = options.reason});
  return tell(settings, store, key, changed);
}

Exit purge(const Settings& settings, const PurgeOptions& options) {
  const auto store = open(settings);
  idem::PurgerOptions pacing;
  pacing.batch = options.batch;
  pacing.pause = parse_duration(options.pause);
  const bool shows = !settings.json && ::isatty(STDERR_FILENO) != 0;
  idem::PurgeReport so_far;
  pacing.on_batch = [&](const idem::PurgeReport& report) {
    so_far = report;
    if (shows)
      std::fprintf(stderr, "\r%llu removed", static_cast<unsigned long long>(report.removed));
  };
  idem::Purger purger(*store, pacing);
  const Audit audit(settings);
  confirm(settings, "Remove all records of " + without_password(settings.store) +
                        " that are past their retention?");
  Change change{.command = "purge", .why = options.reason};
  audit.announce(change);
  const StopAtSignals signals;
  const auto end_line = [&] {
    if (shows) std::fputc('\n', stderr);
  };
  try {
    so_far = purger.run_once(signals.token());
  } catch (const std::exception& problem) {
    end_line();
    so_far.ended_early = true;
    change.after = json_of(so_far);
    change.outcome = std::string("ended half-way: ") + problem.what();
    static_cast<void>(audit.write(change));
    throw;
  }
  end_line();
  const bool stopped = so_far.ended_early && signals.token().stop_requested();
  change.after = json_of(so_far);
  change.outcome = stopped              ? "stopped by a signal"
                   : so_far.ended_early ? "ended half-way: the store does not answer"
                                        : "complete";
  audit.write_made(change);
  if (settings.json) {
    std::cout << line_of(json_of(so_far)) << std::endl;
  } else {
    std::cout << so_far.removed << " records removed in " << to_text(so_far.took) << std::endl;
  }
  if (stopped) throw Ending(Exit::stopped, "stopped: there may be more");
  if (so_far.ended_early) throw Ending(Exit::store, "the store does not answer: there may be more");
  return Exit::done;
}

}  // namespace idempotencyctl
