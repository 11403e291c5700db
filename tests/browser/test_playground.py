"""The playground of the equation and of kernel regression, in a real browser before a real `regard serve`."""


def open_equation(page, address):
    page.goto(f"{address}#equation")
    page.wait_for_selector(".weights td")


def test_points_are_dragged_by_mouse(page, address, shot):
    open_equation(page, address)
    before = page.locator(".weights").first.inner_text()
    query, key = page.locator("[data-name=query-0] .hit-area"), page.locator("[data-name=key-3] .hit-area")
    start, end = query.bounding_box(), key.bounding_box()
    page.mouse.move(start["x"] + 20, start["y"] + 20)
    page.mouse.down()
    page.mouse.move(end["x"] + 10, end["y"] + 10, steps=4)
    page.mouse.move(end["x"] + 20, end["y"] + 20)
    page.mouse.up()
    page.wait_for_function("before => document.querySelector('.weights').innerText !== before", arg=before)
    assert page.locator("[data-name=query-0]").get_attribute("aria-label") == "query 1 at -2.0, -0.6"
    assert "query=-2%2C-0.6" in page.url
    page.wait_for_function(
        "() => document.querySelectorAll('.weights td')[3].innerText > '0.4'"
    )  # the query is near the fourth key
    shot("dragged")


def test_points_are_dragged_by_touch(page, address):
    page.set_viewport_size({"width": 360, "height": 740})
    open_equation(page, address)
    start = page.locator("[data-name=query-1] .hit-area").bounding_box()
    session = page.context.new_cdp_session(page)
    x, y = start["x"] + start["width"] / 2, start["y"] + start["height"] / 2
    session.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]})
    for step in range(1, 5):
        session.send(
            "Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [{"x": x + 10 * step, "y": y + 10 * step}]}
        )
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.wait_for_function(
        "() => !document.querySelector('[data-name=query-1]').getAttribute('aria-label').includes('-1.2')"
    )
    assert page.evaluate("scrollY") == 0


def test_points_are_moved_by_keyboard(page, address):
    open_equation(page, address)
    query = page.locator("[data-name=query-1]")
    query.focus()
    assert "active" in query.get_attribute("class")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowUp")
    assert query.get_attribute("aria-label") == "query 2 at -1.1, 0.9"
    page.locator("[data-name=key-0]").focus()
    page.keyboard.press("h")
    page.wait_for_function("() => document.querySelector('.scores td').innerText === '−∞'")
    assert "hidden" in page.locator("[data-name=key-0]").get_attribute("aria-label")
    assert page.locator(".weights td").first.inner_text() == "0"


def test_the_arguments_of_the_equation_are_selected(page, address, shot):
    open_equation(page, address)
    page.get_by_label("score").select_option("Boxcar")
    page.wait_for_selector("code:has-text('score=Boxcar(width=1.0), normalize=kernel_sum')")
    assert page.get_by_label("normalize").locator("option[value=softmax]").is_disabled()
    page.get_by_label("score").select_option("Gaussian")
    page.get_by_label("normalize").select_option("sparsemax")
    page.get_by_label("mask").select_option("window")
    page.get_by_label("values").select_option("own")
    page.get_by_label("Width").fill("0.5")
    page.wait_for_selector(
        "code:has-text('attend(query, key, value, window(1, 1), score=Gaussian(width=0.5), normalize=sparsemax)')"
    )
    assert page.locator(".dot.value").count() == 6
    shot("arguments")
    page.reload()
    page.wait_for_selector("code:has-text('window(1, 1), score=Gaussian(width=0.5), normalize=sparsemax')")
    page.get_by_role("button", name="add a key").click()
    page.wait_for_selector("th:has-text('k7')")
    page.get_by_role("button", name="Reset").click()
    page.wait_for_selector("code:has-text('score=ScaledDot(), normalize=softmax')")


def test_kernel_regression_follows_the_query(page, address, shot):
    page.goto(f"{address}#regression")
    page.wait_for_selector("text=At 20.0 ms the curve is at −93.7 g")
    page.get_by_role("slider", name="Query").last.focus()
    page.keyboard.press("Shift+ArrowRight")
    page.wait_for_selector("text=At 25.0 ms")
    plot = page.locator(".regression-plot").bounding_box()
    page.mouse.move(plot["x"] + 400, plot["y"] + 100)
    page.mouse.down()
    page.mouse.move(plot["x"] + 500, plot["y"] + 120)
    page.mouse.up()
    page.wait_for_function("() => !document.querySelector('.result').innerText.includes('25.0')")
    page.get_by_role("button", name="Boxcar").click()
    page.get_by_label("Width").fill("0.2")
    page.get_by_label("Query").first.fill("5")
    page.wait_for_selector("text=no measurement has a weight")
    assert "kernel=boxcar&width=0.2&at=5" in page.url
    shot("boxcar")
