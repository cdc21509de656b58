#include "bounds/area.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace stead {

namespace {

constexpr double unit_price = 1 << 20;     // that of all time together, before rounding
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double effort = 6e7;             // terms of the formula that a search may compute

/// Devices that cannot be told apart.
struct Kind {
    int device = 0;  // one of them
    int count = 1;
    double capacity = 0.0;
    bool scarce = false;  // may not hold everything
    bool busy = false;
};

struct Point {
    std::vector<double> time, memory;  // [kind]; count * time adds up to 1
};

/// The dual function over kinds of devices, in floating point.
class Dual {
public:
    Dual(const Work& work, bool with_memory) : work_(work) {
        total_bytes_ = std::accumulate(work.bytes.begin(), work.bytes.end(), 0.0);
        kind_of_.resize(work.devices);
        for (int d = 0; d < work.devices; ++d) {
            kind_of_[d] = static_cast<int>(kinds_.size());
            for (std::size_t j = 0; j < kinds_.size() && kind_of_[d] == static_cast<int>(kinds_.size()); ++j)
                if (alike(kinds_[j].device, d)) kind_of_[d] = static_cast<int>(j);
            if (kind_of_[d] < static_cast<int>(kinds_.size())) {
                ++kinds_[kind_of_[d]].count;
            } else {
                const double capacity = static_cast<double>(work.capacity_bytes[d]);
                kinds_.push_back({d, 1, capacity, with_memory && capacity < total_bytes_, work.busy[d] != 0});
            }
        }
        copy_columns();
        load_.resize(kinds_.size());
        held_.resize(kinds_.size());
    }

    const std::vector<Kind>& kinds() const { return kinds_; }
    const std::vector<int>& kind_of() const { return kind_of_; }
    double total_bytes() const { return total_bytes_; }
    double most_bytes() const {
        return total_bytes_ + std::accumulate(work_.capacity_bytes.begin(), work_.capacity_bytes.end(), 0.0);
    }
    double total_longest() const { return total_longest_; }  // if every row ran where it takes longest
    double terms() const { return static_cast<double>(work_.rows) * kinds_.size(); }
    const std::vector<double>& load() const { return load_; }  // [kind]; work that the last point attracts
    const std::vector<double>& held() const { return held_; }  // [kind]; bytes likewise

    double operator()(const Point& at) {
        std::fill(load_.begin(), load_.end(), 0.0);
        std::fill(held_.begin(), held_.end(), 0.0);
        const std::size_t count = kinds_.size();
        double sum = 0.0;
        const double* ticks = ticks_.data();
        for (std::size_t row = 0; row < work_.rows; ++row, ticks += count) {
            double least = infinity;
            std::size_t choice = 0;
            for (std::size_t j = 0; j < count; ++j) {
                const double price = at.time[j] * ticks[j] + at.memory[j] * bytes_[row];
                if (price < least) least = price, choice = j;
            }
            if (least == infinity) continue;
            sum += least;
            load_[choice] += ticks[choice];
            held_[choice] += bytes_[row];
        }
        for (std::size_t j = 0; j < count; ++j) sum -= kinds_[j].count * at.memory[j] * kinds_[j].capacity;
        return sum;
    }

private:
    bool alike(int a, int b) const {
        if (work_.capacity_bytes[a] != work_.capacity_bytes[b] || work_.busy[a] != work_.busy[b]) return false;
        for (std::size_t row = 0; row < work_.rows; ++row)
            if (work_.ticks[row * work_.devices + a] != work_.ticks[row * work_.devices + b]) return false;
        return true;
    }

    /// Ticks of kinds; infinity where it may not run, which compares as no choice even at a price of 0.
    void copy_columns() {
        ticks_.reserve(work_.rows * kinds_.size());
        bytes_.reserve(work_.rows);
        for (std::size_t row = 0; row < work_.rows; ++row) {
            bytes_.push_back(static_cast<double>(work_.bytes[row]));
            Ticks longest = 0;
            for (const Kind& kind : kinds_) {
                const Ticks ticks = work_.ticks[row * work_.devices + kind.device];
                ticks_.push_back(ticks == impossible ? infinity : static_cast<double>(ticks));
                longest = std::max(longest, ticks);
            }
            total_longest_ += static_cast<double>(longest);
        }
    }

    const Work& work_;
    std::vector<Kind> kinds_;
    std::vector<int> kind_of_;   // [device]
    std::vector<double> ticks_;  // [row, kind]
    std::vector<double> bytes_, load_, held_;
    double total_bytes_ = 0.0, total_longest_ = 0.0;
};

/// Searches good prices: multiplicative steps where there are many kinds, then shrinking ellipsoids.
///
/// Coordinates: for every busy kind but the last its share of all time prices, for every scarce kind the price of its
/// memory over `memory_scale_`. An ellipsoid that holds the best point is cut at its centre by a supergradient, or by a
/// constraint that the centre breaks, and the smallest one around the rest is next (Nemirovski and Yudin 1976; deep
/// cuts: Bland, Goldfarb and Todd 1981, "The Ellipsoid Method: A Survey", section 4).
class Ascent {
public:
    Ascent(Dual& dual, bool fixed_time, Watch* watch) : dual_(dual), watch_(watch), left_(effort) {
        const auto& kinds = dual.kinds();
        for (std::size_t j = 0; j < kinds.size(); ++j) {
            if (!fixed_time && kinds[j].busy) timed_.push_back(j);
            if (kinds[j].scarce) scarce_.push_back(j);
        }
        memory_scale_ = dual.total_longest() / std::max(1.0, dual.total_bytes());
        best_.time.assign(kinds.size(), fixed_time ? 1.0 : 0.0);
        best_.memory.assign(kinds.size(), 0.0);
        for (const std::size_t j : timed_) best_.time[j] = 1.0 / kinds[j].count / static_cast<double>(timed_.size());
        if (timed_.size() > 1) spread_time();
        value_ = try_point(best_);
    }

    Point run() {
        const std::size_t size = (timed_.empty() ? 0 : timed_.size() - 1) + scarce_.size();
        if (size == 0) return best_;
        if (size > 4 && timed_.size() > 1) {
            Point at = best_;
            for (int round = 0; round < 100 && left_ > effort / 2; ++round) step(at, round);
        }
        shrink(size);
        return best_;
    }

private:
    /// At first in proportion to speed.
    void spread_time() {
        Point probe = best_;
        double sum = 0.0;
        for (const std::size_t j : timed_) {
            std::fill(probe.time.begin(), probe.time.end(), 1e30);
            probe.time[j] = 1.0;
            dual_(probe);
            best_.time[j] = 1.0 / std::max(dual_.load()[j], 1.0);
            sum += best_.time[j] * dual_.kinds()[j].count;
        }
        for (double& price : best_.time) price /= sum;
    }

    double try_point(const Point& at) {
        const double value = dual_(at);
        left_ -= dual_.terms();
        if (watch_) watch_->poll();
        if (watch_ && watch_->stopped()) left_ = 0;
        if (value > value_) value_ = value, best_ = at;
        return value;
    }

    void step(Point& at, int round) {
        const auto& kinds = dual_.kinds();
        try_point(at);
        const double size = 1.0 / std::sqrt(1.0 + round);
        double most = 1e-30, sum = 0.0;
        for (std::size_t j = 0; j < kinds.size(); ++j) most = std::max(most, dual_.load()[j] / kinds[j].count);
        for (const std::size_t j : scarce_) {
            const double excess = (dual_.held()[j] / kinds[j].count - kinds[j].capacity) / dual_.total_bytes();
            at.memory[j] = std::max(0.0, at.memory[j] + size * most / dual_.total_bytes() * excess);
        }
        for (const std::size_t j : timed_) {
            at.time[j] *= std::exp(size * dual_.load()[j] / kinds[j].count / most);
            sum += at.time[j] * kinds[j].count;
        }
        for (const std::size_t j : timed_) at.time[j] /= sum;
    }

    /// Cuts ellipsoids { x : (x - centre)' shape^-1 (x - centre) <= 1 } until nothing better can be inside.
    void shrink(std::size_t size) {
        const std::size_t shares = size - scarce_.size();
        std::vector<double> centre(size, 1.0 / (static_cast<double>(shares) + 1)), shape(size * size, 0.0);
        const double reach = std::sqrt(static_cast<double>(size));
        for (std::size_t i = 0; i < size; ++i) {
            const bool share = i < shares;
            if (!share) centre[i] = highest / 2;
            const double radius = (share ? 1.0 : highest / 2) * reach;
            shape[i * size + i] = radius * radius;
        }
        std::vector<double> keep(size), wide(size);
        for (int round = 0; round < 2000 && left_ > 0; ++round) {
            double missing = cut(centre, shares, keep);  // what is looked for has keep' (x - centre) >= missing
            double width = 0.0;
            for (std::size_t i = 0; i < size; ++i) {
                wide[i] = 0.0;
                for (std::size_t j = 0; j < size; ++j) wide[i] += shape[i * size + j] * keep[j];
                width += wide[i] * keep[i];
            }
            width = std::sqrt(width);
            if (!(width > 0.0) || width - missing <= 1e-8 * std::abs(value_)) return;  // nothing better is inside
            cut_ellipsoid(centre, shape, wide, width, std::max(0.0, missing / width));
        }
    }

    /// The direction to keep at the centre and how far there at least, from a broken constraint or from the function.
    double cut(const std::vector<double>& centre, std::size_t shares, std::vector<double>& keep) {
        std::fill(keep.begin(), keep.end(), 0.0);
        double sum = 0.0;
        for (std::size_t i = 0; i < centre.size(); ++i) {
            const bool above = i >= shares && centre[i] > highest;
            if (centre[i] < 0.0 || above) {
                keep[i] = (above ? -1.0 : 1.0) * scale();
                return (above ? centre[i] - highest : -centre[i]) * scale();
            }
            if (i < shares) sum += centre[i];
        }
        if (sum > 1.0) {
            std::fill(keep.begin(), keep.begin() + static_cast<std::ptrdiff_t>(shares), -scale());
            return (sum - 1.0) * scale();
        }
        const auto& kinds = dual_.kinds();
        Point at = best_;
        for (std::size_t i = 0; i < shares; ++i) at.time[timed_[i]] = centre[i] / kinds[timed_[i]].count;
        if (!timed_.empty()) at.time[timed_.back()] = (1.0 - sum) / kinds[timed_.back()].count;
        for (std::size_t i = shares; i < centre.size(); ++i) at.memory[scarce_[i - shares]] = centre[i] * memory_scale_;
        const double value = try_point(at);
        for (std::size_t i = 0; i < shares; ++i)
            keep[i] = dual_.load()[timed_[i]] / kinds[timed_[i]].count -
                      dual_.load()[timed_.back()] / kinds[timed_.back()].count;
        for (std::size_t i = shares; i < centre.size(); ++i) {
            const std::size_t j = scarce_[i - shares];
            keep[i] = (dual_.held()[j] - kinds[j].count * kinds[j].capacity) * memory_scale_;
        }
        return value_ - value;
    }

    /// Cuts for constraints are given the size of values, so that one tolerance fits both.
    double scale() const { return std::max(1.0, std::abs(value_)); }

    static void cut_ellipsoid(std::vector<double>& centre, std::vector<double>& shape, const std::vector<double>& wide,
                              double width, double depth) {
        const std::size_t size = centre.size();
        const double n = static_cast<double>(size);
        const double move = (1 + n * depth) / (n + 1) / width;
        for (std::size_t i = 0; i < size; ++i) centre[i] += move * wide[i];
        if (size == 1) {
            shape[0] *= (1 - depth) * (1 - depth) / 4;
            return;
        }
        const double grow = n * n * (1 - depth * depth) / (n * n - 1);
        const double flat = 2 * (1 + n * depth) / ((n + 1) * (1 + depth)) / (width * width);
        for (std::size_t i = 0; i < size; ++i)
            for (std::size_t j = 0; j < size; ++j)
                shape[i * size + j] = grow * (shape[i * size + j] - flat * wide[i] * wide[j]);
    }

    static constexpr double highest = 1000.0;  // memory price, in units of `memory_scale_`

    Dual& dual_;
    Watch* watch_;  // stops the search for better prices; may be null
    double left_;
    std::vector<std::size_t> timed_, scarce_;  // kinds whose prices are searched
    double memory_scale_ = 1.0;
    Point best_;
    double value_ = -infinity;
};

std::int64_t rounded(double price, double largest) {
    return std::isfinite(price) ? std::llrint(std::clamp(price, 0.0, largest)) : 0;
}

Prices whole_prices(const Dual& dual, const Point& at, double scale) {
    Prices prices;
    const double largest = std::min(0x1p61, 0x1p100 / std::max(1.0, dual.most_bytes()));  // products fit a Wide
    for (std::size_t d = 0; d < dual.kind_of().size(); ++d) {
        const int kind = dual.kind_of()[d];
        prices.time.push_back(rounded(at.time[kind] * scale, scale));
        prices.memory.push_back(rounded(at.memory[kind] * scale, largest));
        prices.whole += prices.time.back();
    }
    return prices;
}

Ticks quotient(Wide value, std::int64_t whole) {
    if (value <= 0 || whole <= 0) return 0;
    const Wide ticks = (value + whole - 1) / whole;  // T is whole
    return static_cast<Ticks>(std::min<Wide>(ticks, never / 2));
}

}  // namespace

Wide value_of(const Work& work, const Prices& prices) {
    Wide sum = 0;
    for (std::size_t row = 0; row < work.rows; ++row) {
        Wide least = -1;
        for (int d = 0; d < work.devices; ++d) {
            const Ticks ticks = work.ticks[row * work.devices + d];
            if (ticks == impossible) continue;
            const Wide price = static_cast<Wide>(prices.time[d]) * ticks +
                                   static_cast<Wide>(prices.memory[d]) * work.bytes[row];
            least = least < 0 ? price : std::min(least, price);
        }
        sum += std::max<Wide>(least, 0);
    }
    for (int d = 0; d < work.devices; ++d)
        sum -= static_cast<Wide>(prices.memory[d]) * work.capacity_bytes[d];
    return sum;
}

Proof area(const Work& work, bool with_memory, Watch* watch) {
    Proof proof;
    proof.prices = {std::vector<std::int64_t>(work.devices, 0), std::vector<std::int64_t>(work.devices, 0), 0};
    if (std::none_of(work.busy.begin(), work.busy.end(), [](std::uint8_t one) { return one != 0; })) return proof;
    Dual dual(work, with_memory);
    proof.prices = whole_prices(dual, Ascent(dual, false, watch).run(), unit_price);
    proof.ticks = quotient(value_of(work, proof.prices), proof.prices.whole);
    return proof;
}

Ticks least_total(const Work& work, Watch* watch) {
    Dual dual(work, true);
    Point at = Ascent(dual, true, watch).run();
    const Prices prices = whole_prices(dual, at, unit_price);
    return quotient(value_of(work, prices), static_cast<std::int64_t>(unit_price));
}

}  // namespace stead
