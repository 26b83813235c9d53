// fake.hpp: a test's own fake driver: begun anew with a setting, and at the end everything must have been given back.
#pragma once
#include <memory>
#include <string>

#include "src/drivers/cuda/context.hpp"
#include "src/drivers/cuda/driver.hpp"
#include "tests/catch.hpp"
#include "tests/error.hpp"
#include "tests/fake_cuda/control.hpp"

namespace weft::internal::test {

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

class FakeDriver {
  public:
    explicit FakeDriver(const std::string& setting = "") {
        fake::reset(setting);
        Result<const cuda::Driver*> opened = cuda::Driver::open(FAKE_CUDA_LIBRARY);
        INFO(opened.status().text());
        REQUIRE(opened.ok());
        driver_.reset(*opened);
    }
    FakeDriver(const FakeDriver&) = delete;
    ~FakeDriver() { CHECK(fake::reset("") == ""); }

    const cuda::Driver& operator*() const { return *driver_; }
    const cuda::Driver* operator->() const { return driver_.get(); }
    cuda::Context context(int device = 0) const {
        Result<cuda::Context> context = cuda::Context::retain(*driver_, device);
        INFO(context.status().sentence());
        REQUIRE(context.ok());
        return std::move(*context);
    }

  private:
    std::unique_ptr<const cuda::Driver> driver_;
};

// The value, or the test ends with the sentence.
template <class T>
T take(Result<T> result) {
    INFO(result.status().sentence());
    REQUIRE(result.ok());
    return std::move(*result);
}
inline void demand(const Status& status) {
    INFO(status.sentence());
    REQUIRE(status.ok());
}

}  // namespace weft::internal::test
