#pragma once

#include <functional>
#include <idempotency/stores/open.hpp>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "settings.hpp"
#include "text.hpp"

namespace idempotencyctl {

/// Keeps what a store says of its server's set-up.
///
/// Thread safety: as `Observer`.
class Hazards final : public idem::Observer {
 public:
  void on_hazard(std::string_view what) noexcept override;
  [[nodiscard]] std::vector<std::string> all() const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> all_;
};

/// A store, and the clock by which it judges leases and ages.
///
/// Thread safety: as the store.
class OpenedStore {
 public:
  template <class StoreT>
  OpenedStore(std::shared_ptr<StoreT> store, std::function<idem::Timestamp()> now)
      : behind_(store), store_(std::make_unique<idem::AnyStore>(*store)), now_(std::move(now)) {}

  [[nodiscard]] idem::AnyStore& operator*() const noexcept { return *store_; }
  [[nodiscard]] idem::AnyStore* operator->() const noexcept { return store_.get(); }
  /// Asks the server, and changes nothing there. Errors: those of the store.
  [[nodiscard]] idem::Timestamp now() const { return now_(); }

 private:
  std::shared_ptr<void> behind_;
  std::unique_ptr<idem::AnyStore> store_;
  std::function<idem::Timestamp()> now_;
};

/// Whether a schema that is not there may be made.
enum class OnMissingSchema { refuse, make };

/// Opens the store of `--store` with the admin ability. Nothing is made that is not there, unless asked for.
///
/// Errors: `Ending`, and those of the store.
[[nodiscard]] OpenedStore open(const Settings& settings, idem::Observer* observer = nullptr,
                               OnMissingSchema missing = OnMissingSchema::refuse);

/// The address without its password, for people and audits.
[[nodiscard]] std::string without_password(const std::string& address);

/// What `schema` is about.
enum class SchemaKind { none, sqlite, mysql };
[[nodiscard]] SchemaKind schema_of(const std::string& address);

/// The path of a SQLite store's file.
[[nodiscard]] std::string sqlite_path(const Settings& settings);

/// The version of the schema in a SQLite file; 0 where there is none. Changes nothing.
///
/// Errors: `Ending` (store) for a file that is not there or no database.
[[nodiscard]] int sqlite_schema_version(const Settings& settings);

}  // namespace idempotencyctl
