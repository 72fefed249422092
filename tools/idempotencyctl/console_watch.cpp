#include "console_watch.hpp"

#include <algorithm>
#include <idempotency/operations/reconciler.hpp>
#include <iostream>

namespace idempotencyctl {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

constexpr std::size_t page_size = 500;
constexpr std::size_t most_points = 720;
constexpr milliseconds unwatched_pause = std::chrono::minutes{1};

bool needs_somebody(Situation situation) noexcept {
  return situation == Situation::uncertain || situation == Situation::silent;
}

/// Orders records as they are shown. Decorated, so that each record is judged once.
struct Ranked {
  bool waits;  ///< for somebody
  idem::Timestamp since;
  idem::Record record;

  friend bool operator<(const Ranked& a, const Ranked& b) {
    if (a.waits != b.waits) return a.waits;
    if (a.since != b.since) return a.since < b.since;
    return a.record.key.text() < b.record.key.text();
  }
};

void keep_first(std::vector<Ranked>& records, std::size_t most) {
  if (records.size() <= most) return;
  const auto end = records.begin() + static_cast<std::ptrdiff_t>(most);
  std::nth_element(records.begin(), end, records.end());
  records.erase(end, records.end());
}

std::vector<idem::Record> in_order(std::vector<Ranked> ranked) {
  keep_first(ranked, Watch::most_kept);
  std::sort(ranked.begin(), ranked.end());
  std::vector<idem::Record> records;
  records.reserve(ranked.size());
  for (Ranked& one : ranked)
    records.push_back(std::move(one.record));
  return records;
}

/// Null for what is finished.
std::size_t* count_of(Look::Counts& counts, Situation situation) noexcept {
  switch (situation) {
    case Situation::running:
      return &counts.running;
    case Situation::uncertain:
      return &counts.uncertain;
    case Situation::silent:
      return &counts.silent;
    case Situation::abandoned:
      return &counts.abandoned;
    case Situation::finished:
      return nullptr;
  }
  return nullptr;
}

/// Both lists of a look while it is made.
struct Lists {
  std::vector<Ranked> stuck;
  std::vector<Ranked> running;
};

void add(idem::Record record, Look& look, Lists& lists) {
  const Situation situation = situation_of(record, look.at);
  if (situation == Situation::finished) return;
  if (record.key.type() == idem::Reconciler::record_type) {
    ++look.reconciling;
    return;
  }
  ++*count_of(look.by_type[std::string(record.key.type())], situation);
  auto& list = situation == Situation::running ? lists.running : lists.stuck;
  list.push_back({needs_somebody(situation), since(record, situation), std::move(record)});
  if (list.size() >= 2 * Watch::most_kept) keep_first(list, Watch::most_kept);
}

/// Null when it was asked to stop.
std::shared_ptr<Look> look_at(const OpenedStore& store, const std::stop_token& stop) {
  auto look = std::make_shared<Look>();
  look->began = steady_clock::now();
  look->at = store.now();
  look->statistics = store->admin()->statistics();
  Lists lists;
  for (const auto state : {idem::RecordState::uncertain, idem::RecordState::processing}) {
    std::string cursor;
    do {
      idem::RecordPage page = store->admin()->list({.state = state}, cursor, page_size);
      for (idem::Record& record : page.records)
        add(std::move(record), *look, lists);
      for (const idem::RecordPage::Unreadable& one : page.unreadable) {
        if (look->unreadable.size() < Watch::most_unreadable) {
          look->unreadable.emplace(one.key.text(), one.why);
        }
      }
      cursor = std::move(page.cursor);
      if (stop.stop_requested()) return nullptr;
    } while (!cursor.empty());
  }
  look->stuck = in_order(std::move(lists.stuck));
  look->running = in_order(std::move(lists.running));
  look->took = std::chrono::duration_cast<milliseconds>(steady_clock::now() - look->began);
  return look;
}

}  // namespace

std::string_view to_string(Situation situation) noexcept {
  switch (situation) {
    case Situation::running:
      return "running";
    case Situation::uncertain:
      return "uncertain";
    case Situation::silent:
      return "silent";
    case Situation::abandoned:
      return "abandoned";
    case Situation::finished:
      return "finished";
  }
  return "unknown";
}

Situation situation_of(const idem::Record& record, idem::Timestamp now) noexcept {
  if (record.state == idem::RecordState::uncertain) return Situation::uncertain;
  if (record.state != idem::RecordState::processing) return Situation::finished;
  if (!idem::is_unsettled(record, now)) return Situation::running;
  const bool holds = record.mode == idem::RecordMode::hold || record.effect_marked;
  return holds ? Situation::silent : Situation::abandoned;
}

idem::Timestamp since(const idem::Record& record, Situation situation) noexcept {
  const bool fell_silent = situation == Situation::silent || situation == Situation::abandoned;
  return fell_silent ? record.lease_until.value_or(record.updated_at) : record.updated_at;
}

Look::Counts Look::counts() const noexcept {
  Counts all;
  for (const auto& [type, of_type] : by_type) {
    all.running += of_type.running;
    all.uncertain += of_type.uncertain;
    all.silent += of_type.silent;
    all.abandoned += of_type.abandoned;
  }
  return all;
}

void Watch::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const auto began = steady_clock::now();
    try {
      look(stop);
    } catch (const idem::Error& error) {
      note_problem(error.what());
    } catch (const std::exception& problem) {
      note_problem(problem.what());
    }
    const auto took = std::chrono::duration_cast<milliseconds>(steady_clock::now() - began);
    std::unique_lock lock(mutex_);
    woken_.wait_for(lock, stop, pause_after(took), [this] { return wakes_; });
    wakes_ = false;
  }
}

milliseconds Watch::pause_after(milliseconds took) const {
  const bool is_watched = steady_clock::now() - watched_at_ < unwatched_pause;
  return std::max(9 * took, is_watched ? every_ : std::max(every_, unwatched_pause));
}

void Watch::look(const std::stop_token& stop) {
  std::shared_ptr<OpenedStore> store;
  {
    const std::scoped_lock lock(mutex_);
    store = store_;
  }
  if (store == nullptr) {
    store = std::make_shared<OpenedStore>(open(settings_));
    const std::scoped_lock lock(mutex_);
    store_ = store;
  }
  if (auto look = look_at(*store, stop)) publish(std::move(look));
}

void Watch::publish(std::shared_ptr<Look> look) {
  const std::scoped_lock lock(mutex_);
  leave_out_changed(*look);
  if (!state_.problem.empty()) std::cerr << "the store answers again" << std::endl;
  state_.problem.clear();
  state_.failing_since.reset();
  const Look::Counts counts = look->counts();
  history_.push_back(
      {look->at, counts.running, counts.uncertain + counts.silent + counts.abandoned});
  if (history_.size() > most_points) history_.pop_front();
  state_.look = std::move(look);
}

void Watch::note_problem(const std::string& problem) {
  const std::scoped_lock lock(mutex_);
  if (state_.problem != problem) std::cerr << "the store: " << printable(problem) << std::endl;
  state_.problem = problem;
  if (!state_.failing_since) state_.failing_since = idem::system_clock().now();
}

void Watch::leave_out_changed(Look& look) {
  std::erase_if(changed_, [&](const auto& change) { return change.second < look.began; });
  if (changed_.empty()) return;
  const auto is_changed = [&](const idem::Record& record) {
    if (!changed_.contains(record.key.text())) return false;
    --*count_of(look.by_type[std::string(record.key.type())], situation_of(record, look.at));
    return true;
  };
  std::erase_if(look.stuck, is_changed);
  std::erase_if(look.running, is_changed);
}

Watch::State Watch::state() {
  const std::scoped_lock lock(mutex_);
  const auto now = steady_clock::now();
  if (now - watched_at_ > unwatched_pause) {
    wakes_ = true;  // nobody has watched for a while: what is known may be old
    woken_.notify_all();
  }
  watched_at_ = now;
  State state = state_;
  state.history.assign(history_.begin(), history_.end());
  return state;
}

void Watch::note_change(const idem::Key& key) {
  const std::scoped_lock lock(mutex_);
  changed_.insert_or_assign(key.text(), steady_clock::now());
  if (state_.look != nullptr) {
    auto look = std::make_shared<Look>(*state_.look);
    leave_out_changed(*look);
    state_.look = std::move(look);
  }
  wakes_ = true;
  woken_.notify_all();
}

std::shared_ptr<OpenedStore> Watch::store() const {
  const std::scoped_lock lock(mutex_);
  if (store_ == nullptr) {
    throw Ending(Exit::store,
                 state_.problem.empty() ? "the store is being opened; ask again" : state_.problem);
  }
  return store_;
}

}  // namespace idempotencyctl
