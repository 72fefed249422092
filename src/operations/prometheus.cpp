#include "idempotency/operations/prometheus.hpp"

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

namespace idempotency {
inline namespace v0 {

namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Labels;

constexpr std::size_t status_count = static_cast<std::size_t>(RunStatus::not_issued) + 1;
constexpr std::size_t call_count = static_cast<std::size_t>(StoreCall::commit) + 1;
constexpr std::array<std::string_view, 8> own_labels{"type", "outcome", "disposition", "call",
                                                     "code", "verdict", "state",       "breaker"};

// Values of labels that are known before they occur.
constexpr std::array<std::string_view, 3> dispositions{"retryable", "permanent", "uncertain"};
constexpr std::array<std::string_view, 3> verdicts{"succeeded", "failed", "retry"};
constexpr std::array<std::string_view, 3> outcomes_behind{"recorded", "lost", "given up"};
constexpr std::array breaker_states{BreakerState::closed, BreakerState::open,
                                    BreakerState::half_open};
constexpr std::array store_codes{
    Errc::store_unavailable, Errc::store_reply_lost, Errc::store_busy,       Errc::store_full,
    Errc::store_refused,     Errc::store_corrupt,    Errc::store_undecidable};

double seconds(std::chrono::nanoseconds span) noexcept {
  return std::chrono::duration<double>(span).count();
}

bool is_label(std::string_view name) noexcept {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  const auto goes_on = [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); };
  return !name.empty() && is_letter(name.front()) && !name.starts_with("__") && name != "le" &&
         std::all_of(name.begin(), name.end(), goes_on);
}

void check_labels(const std::map<std::string, std::string>& labels) {
  for (const auto& [name, value] : labels) {
    const bool is_own = std::find(own_labels.begin(), own_labels.end(), name) != own_labels.end();
    if (is_label(name) && !is_own) continue;
    throw Error(Errc::invalid_argument,
                is_own ? "Prometheus: a label of one's own must not be called type, outcome, "
                         "disposition, call, code, verdict, state or breaker"
                       : "Prometheus: a label's name has letters, digits and '_', does not begin "
                         "with a digit or \"__\", and is not le",
                name);
  }
}

PrometheusOptions checked(PrometheusOptions options) {
  check_labels(options.labels);
  const auto& buckets = options.buckets;
  const bool rises =
      std::adjacent_find(buckets.begin(), buckets.end(), [](double before, double after) {
        return !(before < after);
      }) == buckets.end();
  const bool counts = std::all_of(buckets.begin(), buckets.end(),
                                  [](double bound) { return std::isfinite(bound) && bound > 0; });
  if (buckets.empty() || !rises || !counts) {
    throw Error(Errc::invalid_argument,
                "Prometheus: give at least one bucket; bounds are seconds, above 0, and rise");
  }
  if (options.types.size() > options.most_types) {
    throw Error(Errc::invalid_argument, "Prometheus: more types are named than most_types allows");
  }
  return options;
}

/// A label whose values are few: the time series of each is looked up once.
template <class Metric>
class ByText {
 public:
  template <class Make>
  Metric& at(std::string_view text, Make make) {
    {
      const std::shared_lock lock(mutex_);
      if (const auto found = known_.find(std::string(text)); found != known_.end()) {
        return *found->second;
      }
    }
    const std::unique_lock lock(mutex_);
    Metric*& metric = known_[std::string(text)];
    if (metric == nullptr) metric = &make();
    return *metric;
  }

 private:
  std::shared_mutex mutex_;
  std::unordered_map<std::string, Metric*> known_;
};

}  // namespace

struct PrometheusObserver::Impl {
  /// The time series of one business type.
  struct OfType {
    std::string name;
    std::array<Counter*, status_count> runs{};
    Histogram* run = nullptr;
    Histogram* handler = nullptr;
    Histogram* wait = nullptr;
    Counter* renewals = nullptr;
    Counter* losses = nullptr;
  };

  Impl(std::shared_ptr<prometheus::Registry> given, PrometheusOptions wanted)
      : options(checked(std::move(wanted))), registry(std::move(given)) {
    for (std::size_t at = 0; at < call_count; ++at) {
      const std::string call(to_string(static_cast<StoreCall>(at)));
      store_calls.at(at) = &store_duration.Add(with_own({{"call", call}}), options.buckets);
      for (const Errc code : store_codes)
        store_errors.Add(with_own({{"call", call}, {"code", std::string(to_string(code))}}));
    }
    other = make("other");
    for (const std::string& type : options.types)
      types.emplace(type, make(type));
  }

  /// Of a metric and not of its family: families with other labels cannot share a registry.
  [[nodiscard]] Labels with_own(Labels labels) const {
    labels.insert(options.labels.begin(), options.labels.end());
    return labels;
  }

  Family<Counter>& counter(const std::string& name, const std::string& help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(*registry);
  }
  Family<Gauge>& gauge(const std::string& name, const std::string& help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(*registry);
  }
  Family<Histogram>& histogram(const std::string& name, const std::string& help) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(*registry);
  }

  std::unique_ptr<OfType> make(const std::string& type) {
    auto made = std::make_unique<OfType>();
    made->name = type;
    for (std::size_t at = 0; at < status_count; ++at) {
      const std::string outcome(to_string(static_cast<RunStatus>(at)));
      made->runs.at(at) = &runs.Add(with_own({{"type", type}, {"outcome", outcome}}));
    }
    const Labels labels = with_own({{"type", type}});
    made->run = &run_duration.Add(labels, options.buckets);
    made->handler = &handler_duration.Add(labels, options.buckets);
    made->wait = &wait_duration.Add(labels, options.buckets);
    made->renewals = &renewals.Add(labels);
    made->losses = &losses.Add(labels);
    for (const std::string_view disposition : dispositions)
      exceptions.Add(with_own({{"type", type}, {"disposition", std::string(disposition)}}));
    for (const std::string_view outcome : outcomes_behind)
      behind.Add(with_own({{"type", type}, {"outcome", std::string(outcome)}}));
    for (const std::string_view verdict : verdicts)
      resolved.Add(with_own({{"type", type}, {"verdict", std::string(verdict)}}));
    return made;
  }

  OfType& of(const Key& key) {
    const std::string type(key.type());
    {
      const std::shared_lock lock(mutex);
      if (const auto found = types.find(type); found != types.end()) return *found->second;
      if (types.size() >= options.most_types) return *other;
    }
    const std::unique_lock lock(mutex);
    if (const auto found = types.find(type); found != types.end()) return *found->second;
    if (types.size() >= options.most_types) return *other;
    return *types.emplace(type, make(type)).first->second;
  }

  PrometheusOptions options;
  std::shared_ptr<prometheus::Registry> registry;
  Family<Counter>& runs =
      counter("idempotency_runs_total", "Calls of run by outcome; duplicates are no errors.");
  Family<Histogram>& run_duration = histogram("idempotency_run_duration_seconds",
                                              "How long calls of run took, handler included.");
  Family<Histogram>& handler_duration =
      histogram("idempotency_handler_duration_seconds", "How long handlers ran.");
  Family<Histogram>& wait_duration =
      histogram("idempotency_wait_duration_seconds",
                "How long calls waited for another call with the same key.");
  Family<Counter>& exceptions = counter("idempotency_handler_exceptions_total",
                                        "Exceptions of handlers by what they say of the effect.");
  Family<Histogram>& store_duration =
      histogram("idempotency_store_call_duration_seconds", "How long the store took to answer.");
  Family<Counter>& store_errors =
      counter("idempotency_store_errors_total", "Store calls that failed, each attempt.");
  Family<Counter>& renewals = counter("idempotency_lease_renewals_total", "Leases renewed.");
  Family<Counter>& losses = counter("idempotency_leases_lost_total",
                                    "Leases lost, or about to end, while a handler ran.");
  Family<Counter>& behind = counter("idempotency_settled_behind_total",
                                    "Results recorded after run had returned, or found lost.");
  Family<Counter>& resolved =
      counter("idempotency_resolved_total", "Records settled by an operator or a reconciler.");
  Family<Counter>& hazard_family = counter(
      "idempotency_hazards_total", "Set-ups found that can lose records; the log names them.");
  Counter& hazards = hazard_family.Add(with_own({}));
  Family<Gauge>& breakers =
      gauge("idempotency_breaker_state", "1 for the state that a store's breaker is in.");

  std::array<Histogram*, call_count> store_calls{};
  std::shared_mutex mutex;
  std::unordered_map<std::string, std::unique_ptr<OfType>> types;
  std::unique_ptr<OfType> other;
  ByText<Counter> by_exception;
  ByText<Counter> by_error;
  ByText<Counter> by_behind;
  ByText<Counter> by_verdict;
};

namespace {

/// An observer's hooks are no place for exceptions: without memory for a new time series it is not counted.
template <class Work>
void quietly(Work work) noexcept {
  try {
    work();
  } catch (const std::exception&) {
    return;
  }
}

void check_registry(const std::shared_ptr<prometheus::Registry>& registry) {
  if (registry == nullptr) throw Error(Errc::invalid_argument, "Prometheus: give a registry");
}

}  // namespace

PrometheusObserver::PrometheusObserver(std::shared_ptr<prometheus::Registry> registry,
                                       PrometheusOptions options) {
  check_registry(registry);
  try {
    impl_ = std::make_unique<Impl>(std::move(registry), std::move(options));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& refused) {
    throw Error(
        Errc::invalid_argument,
        "Prometheus: the registry does not take the metrics: leave the names idempotency_... to "
        "this library",
        refused.what());
  }
}

PrometheusObserver::~PrometheusObserver() = default;

void PrometheusObserver::on_finished(const Key& key, RunStatus status,
                                     std::chrono::nanoseconds total) noexcept {
  quietly([&] {
    Impl::OfType& type = impl_->of(key);
    type.runs.at(static_cast<std::size_t>(status))->Increment();
    type.run->Observe(seconds(total));
  });
}

void PrometheusObserver::on_handler_ended(const Key& key, std::chrono::nanoseconds took) noexcept {
  quietly([&] { impl_->of(key).handler->Observe(seconds(took)); });
}

void PrometheusObserver::on_waited(const Key& key, std::chrono::nanoseconds waited) noexcept {
  quietly([&] { impl_->of(key).wait->Observe(seconds(waited)); });
}

void PrometheusObserver::on_store_answered(const Key& /*key*/, StoreCall call,
                                           std::chrono::nanoseconds took) noexcept {
  quietly([&] { impl_->store_calls.at(static_cast<std::size_t>(call))->Observe(seconds(took)); });
}

void PrometheusObserver::on_handler_threw(const Key& key, std::string_view disposition) noexcept {
  quietly([&] {
    const std::string& type = impl_->of(key).name;
    impl_->by_exception
        .at(type + '\n' + std::string(disposition),
            [&]() -> Counter& {
              return impl_->exceptions.Add(
                  impl_->with_own({{"type", type}, {"disposition", std::string(disposition)}}));
            })
        .Increment();
  });
}

void PrometheusObserver::on_store_error(const Key& /*key*/, StoreCall call, const Error& error,
                                        std::uint32_t /*attempt*/) noexcept {
  quietly([&] {
    const std::string name(to_string(call));
    const std::string code(to_string(error.code()));
    impl_->by_error
        .at(name + '\n' + code,
            [&]() -> Counter& {
              return impl_->store_errors.Add(impl_->with_own({{"call", name}, {"code", code}}));
            })
        .Increment();
  });
}

void PrometheusObserver::on_lease_renewed(const Key& key, std::uint64_t /*fence*/) noexcept {
  quietly([&] { impl_->of(key).renewals->Increment(); });
}

void PrometheusObserver::on_lease_lost(const Key& key, std::uint64_t /*fence*/) noexcept {
  quietly([&] { impl_->of(key).losses->Increment(); });
}

void PrometheusObserver::on_settled_behind(const Key& key, std::string_view outcome) noexcept {
  quietly([&] {
    const std::string& type = impl_->of(key).name;
    impl_->by_behind
        .at(type + '\n' + std::string(outcome),
            [&]() -> Counter& {
              return impl_->behind.Add(
                  impl_->with_own({{"type", type}, {"outcome", std::string(outcome)}}));
            })
        .Increment();
  });
}

void PrometheusObserver::on_hazard(std::string_view /*what*/) noexcept {
  quietly([&] { impl_->hazards.Increment(); });
}

void PrometheusObserver::on_breaker_changed(std::string_view name, BreakerState state) noexcept {
  quietly([&] {
    for (const BreakerState each : breaker_states) {
      impl_->breakers
          .Add(impl_->with_own(
              {{"breaker", std::string(name)}, {"state", std::string(to_string(each))}}))
          .Set(each == state ? 1 : 0);
    }
  });
}

void PrometheusObserver::on_resolved(const Key& key, std::string_view verdict) noexcept {
  quietly([&] {
    const std::string& type = impl_->of(key).name;
    impl_->by_verdict
        .at(type + '\n' + std::string(verdict),
            [&]() -> Counter& {
              return impl_->resolved.Add(
                  impl_->with_own({{"type", type}, {"verdict", std::string(verdict)}}));
            })
        .Increment();
  });
}

struct PrometheusRecords::Impl {
  std::function<StoreStatistics()> count;
  std::chrono::milliseconds interval;
  std::vector<prometheus::ClientMetric::Label> labels;
  std::mutex mutex;
  std::optional<StoreStatistics> last;
  std::optional<std::chrono::steady_clock::time_point> asked_at;

  std::optional<StoreStatistics> ask() {
    const std::lock_guard lock(mutex);
    const auto now = std::chrono::steady_clock::now();
    if (asked_at && now - *asked_at < interval) return last;
    asked_at = now;
    last.reset();
    try {
      last = count();
    } catch (const std::exception&) {
      last.reset();
    }
    return last;
  }

  [[nodiscard]] prometheus::ClientMetric gauge(double value) const {
    prometheus::ClientMetric metric;
    metric.label = labels;
    metric.gauge.value = value;
    return metric;
  }
};

PrometheusRecords::PrometheusRecords(std::function<StoreStatistics()> count,
                                     std::chrono::milliseconds interval,
                                     const std::map<std::string, std::string>& labels)
    : impl_(std::make_unique<Impl>()) {
  check_labels(labels);
  if (interval < std::chrono::milliseconds{0}) {
    throw Error(Errc::invalid_argument, "Prometheus: the interval of counting is not negative");
  }
  impl_->count = std::move(count);
  impl_->interval = interval;
  for (const auto& [name, value] : labels)
    impl_->labels.push_back({name, value});
}

PrometheusRecords::~PrometheusRecords() = default;

std::vector<prometheus::MetricFamily> PrometheusRecords::Collect() const {
  using prometheus::MetricFamily;
  using prometheus::MetricType;
  const std::optional<StoreStatistics> found = impl_->ask();
  MetricFamily up{"idempotency_records_up",
                  "Whether the store could be asked for its records.",
                  MetricType::Gauge,
                  {impl_->gauge(found ? 1 : 0)}};
  if (!found) return {std::move(up)};
  MetricFamily records{
      "idempotency_records", "Records by state, as last counted.", MetricType::Gauge, {}};
  const std::array<std::pair<const char*, std::uint64_t>, 5> counts{
      {{"processing", found->processing},
       {"success", found->success},
       {"failed", found->failed},
       {"uncertain", found->uncertain},
       {"issued", found->issued}}};
  for (const auto& [state, number] : counts) {
    prometheus::ClientMetric metric = impl_->gauge(static_cast<double>(number));
    metric.label.push_back({"state", state});
    records.metric.push_back(std::move(metric));
  }
  MetricFamily bytes{"idempotency_record_bytes",
                     "Held for records: memory, or the file's size.",
                     MetricType::Gauge,
                     {impl_->gauge(static_cast<double>(found->bytes))}};
  return {std::move(up), std::move(records), std::move(bytes)};
}

}  // namespace v0
}  // namespace idempotency
