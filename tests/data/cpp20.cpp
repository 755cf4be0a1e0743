// Names of every kind that a C++20 program has, for comparing what is made of them with c++filt.
#include <algorithm>
#include <any>
#include <array>
#include <atomic>
#include <bitset>
#include <charconv>
#include <chrono>
#include <compare>
#include <concepts>
#include <coroutine>
#include <deque>
#include <functional>
#include <future>
#include <iostream>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <queue>
#include <random>
#include <ranges>
#include <regex>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace shapes {

template <typename T>
concept Numeric = std::integral<T> || std::floating_point<T>;

template <typename T>
concept Sized = requires(const T &value) {
    { value.size() } -> std::convertible_to<std::size_t>;
};

template <Numeric T>
T twice(T value) { return value + value; }

template <typename... Ts>
    requires(sizeof...(Ts) > 0)
auto sum(Ts... values) { return (values + ...); }

template <typename... Ts>
auto sum_left(Ts &&...values) -> decltype((... + std::forward<Ts>(values))) { return (... + std::forward<Ts>(values)); }

template <typename T, std::size_t N>
struct Matrix {
    std::array<std::array<T, N>, N> rows{};
    T &operator()(std::size_t row, std::size_t column) { return rows[row][column]; }
    const T *operator[](std::size_t row) const & { return rows[row].data(); }
    template <typename U>
    explicit operator Matrix<U, N>() const {
        Matrix<U, N> other;
        for (std::size_t row = 0; row < N; row++)
            std::copy(rows[row].begin(), rows[row].end(), other.rows[row].begin());
        return other;
    }
    auto operator<=>(const Matrix &) const = default;
};

template <auto Value>
struct Constant {
    static constexpr auto value = Value;
    static void touch() {}
};

enum class Colour : unsigned char { red, green };
struct Point {
    int x, y;
};

template <Point P>
int at() { return P.x * P.y; }

template <template <typename...> class Container, typename T>
Container<T> fill(T value) { return Container<T>{value, value}; }

template <typename T>
auto size_of(const T &value) -> decltype(value.size()) { return value.size(); }

template <typename T>
auto bytes_of(const T &value) -> decltype(sizeof(value) + alignof(T) + int(value.size() > 2)) { return sizeof(value); }

template <typename T, typename = std::enable_if_t<!std::is_array_v<T> && std::is_class<T>::value>>
typename std::remove_reference<T>::type &&moved(T &value) { return static_cast<T &&>(value); }

template <typename T>
std::enable_if_t<(sizeof(T) > 4), T> wide(T value) { return value; }

struct Base {
    virtual ~Base() = default;
    virtual std::string name() const = 0;
    int plain(int (*callback)(int), int (&array)[3]) { return callback(array[0]); }
};
struct Other {
    virtual void other() {}
};
struct Derived : Other, virtual Base {
    std::string name() const override { return "derived"; }
    using Base::plain;
    friend bool operator==(const Derived &, const Derived &) { return true; }
    struct {
        int inner;
        int get() { return inner; }
    } unnamed;
};

struct Inherits : std::vector<int> {
    using std::vector<int>::vector;
};

long double operator""_km(long double value) { return value; }
unsigned operator""_count(const char *, std::size_t length) { return length; }

}  // namespace shapes

namespace {

struct Hidden {
    int value;
    template <typename F>
    auto with(F &&f) && noexcept(noexcept(f(1))) { return f(value); }
};

template <typename T>
struct Generator {
    struct promise_type {
        T current{};
        Generator get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
        std::suspend_always initial_suspend() noexcept { return {}; }
        std::suspend_always final_suspend() noexcept { return {}; }
        std::suspend_always yield_value(T value) { current = value; return {}; }
        void return_void() {}
        void unhandled_exception() {}
    };
    std::coroutine_handle<promise_type> handle;
    bool next() { handle.resume(); return !handle.done(); }
};

Generator<int> count_to(int last) {
    for (int at = 0; at < last; at++) co_yield at;
}

template <typename T>
Generator<std::pair<int, T>> numbered(std::vector<T> items) {
    int at = 0;
    for (auto &item : items) co_yield std::pair<int, T>{at++, item};
}

}  // namespace

template <class... Ts>
struct overloaded : Ts... {
    using Ts::operator()...;
};
template <class... Ts>
overloaded(Ts...) -> overloaded<Ts...>;

template <typename... Args>
std::string format(std::string_view pattern, const Args &...args) {
    std::ostringstream out;
    std::size_t at = 0;
    auto one = [&]<typename T>(const T &arg) {
        auto brace = pattern.find("{}", at);
        out << pattern.substr(at, brace - at) << arg;
        at = brace + 2;
    };
    (one(args), ...);
    return out.str();
}

template <typename F, typename... Args>
decltype(auto) call(F &&f, Args &&...args) noexcept(noexcept(std::declval<F>()(std::declval<Args>()...))) {
    return std::invoke(std::forward<F>(f), std::forward<Args>(args)...);
}

template <typename T>
int by_tuple(T &&tuple) {
    return std::apply([](auto &&...items) { return (0 + ... + int(items)); }, std::forward<T>(tuple));
}

template <typename T, std::size_t... Is>
auto rotated(const T &tuple, std::index_sequence<Is...>) {
    return std::make_tuple(std::get<(Is + 1) % sizeof...(Is)>(tuple)...);
}

static int with_static() {
    static std::map<std::string, std::vector<std::shared_ptr<shapes::Base>>> cache;
    static thread_local int calls = 0;
    struct Local {
        int operator()(int x) const { return x + calls; }
    };
    cache["a"].push_back(std::make_shared<shapes::Derived>());
    return Local{}(int(cache.size()));
}

thread_local std::unordered_map<std::string, std::function<int(const std::string &)>> handlers;

using namespace shapes;

int main(int argc, char **) {
    int array[3] = {1, 2, 3};
    shapes::Derived derived;
    derived.unnamed.inner = derived.plain([](int x) { return x; }, array) + derived.unnamed.get();
    std::cout << shapes::twice(1) << shapes::twice(2.5) << shapes::sum(1, 2.0, 3L) << shapes::sum_left(1, 2);
    shapes::Matrix<int, 2> matrix;
    matrix(0, 1) = 5;
    auto wider = static_cast<shapes::Matrix<double, 2>>(matrix);
    std::cout << wider[0][1] << (matrix < matrix) << (matrix == matrix);
    shapes::Constant<5>::touch();
    shapes::Constant<'c'>::touch();
    shapes::Constant<shapes::Colour::green>::touch();
    shapes::Constant<&with_static>::touch();
    shapes::Constant<&shapes::Derived::name>::touch();
    shapes::Constant<&shapes::Point::x>::touch();
    shapes::Constant<nullptr>::touch();
    shapes::Constant<-7LL>::touch();
    shapes::Constant<true>::touch();
    shapes::Constant<2.5>::touch();
    shapes::Constant<[] { return 1; }>::touch();
    std::cout << shapes::at<shapes::Point{2, 3}>() << shapes::fill<std::vector>(1).size() << shapes::fill<std::list>('x').size();
    std::string text = "some words and some more";
    std::cout << shapes::size_of(text) << shapes::bytes_of(text) << shapes::moved(text) << shapes::wide(1L) << 1.5_km << "abc"_count;
    shapes::Inherits inherits(3, argc), copied(inherits);
    std::cout << inherits.size() << Hidden{3}.with([](auto x) { return x * 2; });
    auto numbers = count_to(3);
    while (numbers.next()) std::cout << numbers.handle.promise().current;
    auto named = numbered(std::vector<std::string>{"a", "b"});
    named.next();

    std::variant<int, std::string, std::vector<double>, std::monostate> variant = "text";
    auto kind = std::visit(overloaded{[](int) { return 1; }, [](const std::string &s) { return int(s.size()); },
                                      [](auto &&...) { return 0; }},
                           variant);
    std::cout << kind << format("{} and {} and {}", 1, "two", std::string("three"));
    std::map<std::string, std::map<int, std::set<std::string>>> words;
    std::istringstream in(text);
    for (std::string word; in >> word;) words[word][int(word.size())].insert(word);
    auto view = words | std::views::keys | std::views::filter([](const auto &w) { return w.size() > 3; }) |
                std::views::transform([](const std::string &w) { return std::string_view(w).substr(1); }) |
                std::views::take(2);
    for (auto w : view) std::cout << w;
    std::vector<int> numbers_of(20);
    std::iota(numbers_of.begin(), numbers_of.end(), argc);
    std::ranges::sort(numbers_of, std::greater<>{}, [](int x) { return x % 7; });
    std::sort(numbers_of.begin(), numbers_of.end(), [](int a, int b) { return a < b; });
    std::nth_element(numbers_of.begin(), numbers_of.begin() + 3, numbers_of.end());
    std::cout << std::accumulate(numbers_of.begin(), numbers_of.end(), 0L, [](long a, auto b) { return a + b; });
    std::regex expression("([a-z]+) (words)", std::regex::icase);
    std::smatch match;
    if (std::regex_search(text, match, expression)) std::cout << match[1].str() << std::regex_replace(text, expression, "$2");
    handlers["size"] = [&text](const std::string &s) { return int(s.size() + text.size()); };
    handlers["bound"] = std::bind([](int a, const std::string &b) { return a + int(b.size()); }, 2, std::placeholders::_1);
    std::cout << handlers["size"]("x") << handlers.at("bound")("y");
    std::any any = std::make_tuple(1, 'c', 2.5f);
    std::cout << by_tuple(std::any_cast<std::tuple<int, char, float>>(any));
    auto turned = rotated(std::tuple{1, std::string("a"), 2.5}, std::make_index_sequence<3>{});
    auto [first, second, third] = turned;
    std::cout << first << second << third << call([](int a, int b) { return a * b; }, 2, 3);
    auto future = std::async(std::launch::deferred, [](std::unique_ptr<int> p) { return *p; }, std::make_unique<int>(4));
    std::cout << future.get() << with_static();
    std::thread thread([flag = std::make_shared<std::atomic<bool>>(false)] { flag->store(true); });
    thread.join();
    std::priority_queue<std::pair<int, std::string>, std::deque<std::pair<int, std::string>>, std::greater<>> queue;
    queue.emplace(1, "one");
    queue.push({0, "zero"});
    std::optional<std::span<const int>> span = std::span(numbers_of);
    std::mt19937_64 engine(1);
    std::normal_distribution<> normal;
    std::cout << queue.top().second << span->size() << normal(engine) << std::bitset<70>(5);
    int (*pointers[2])(int) = {[](int x) { return x; }, +[](int x) { return -x; }};
    std::function<void (*(int))(char)> nested = [](int) -> void (*)(char) { return nullptr; };
    std::cout << pointers[1](2) << bool(nested(1)) << std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::seconds(2)).count();
    std::function<int(int)> recursive = [&](int x) { return x < 2 ? 1 : x * recursive(x - 1); };
    std::cout << recursive(5) << '\n';
}
