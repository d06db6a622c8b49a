package io.tidegate.client.servlet;

import io.tidegate.client.Decision;
import io.tidegate.client.Header;
import io.tidegate.client.Tidegate;
import io.tidegate.client.middleware.Guard;
import io.tidegate.client.middleware.Limits;
import io.tidegate.client.middleware.Outcome;
import io.tidegate.client.middleware.RequestInfo;
import jakarta.servlet.AsyncEvent;
import jakarta.servlet.AsyncListener;
import jakarta.servlet.DispatcherType;
import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletRequestWrapper;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.Collections;
import java.util.Enumeration;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * Limits the requests of a servlet application.
 *
 * <p>A denied request is answered with 429, a request without an answer under {@code CLOSED} with
 * 503. The thread of the request blocks until the decision, at most for the client's timeout.
 */
public final class RateLimitFilter implements Filter {
  /** The request attribute with the {@link Decision}. */
  public static final String DECISION = "io.tidegate.client.decision";

  private final Guard guard;

  /**
   * Creates a filter.
   *
   * @param client the client
   * @param limits what is limited
   */
  public RateLimitFilter(Tidegate client, Limits limits) {
    this.guard = new Guard(client, limits);
  }

  @Override
  public void doFilter(ServletRequest request, ServletResponse response, FilterChain chain)
      throws IOException, ServletException {
    if (!(request instanceof HttpServletRequest http)
        || !(response instanceof HttpServletResponse answer)
        // Forwards, errors and resumed asynchronous requests were decided as requests.
        || request.getDispatcherType() != DispatcherType.REQUEST) {
      chain.doFilter(request, response);
      return;
    }
    Outcome outcome = guard.decide(new ServletRequestInfo(http));
    if (outcome instanceof Outcome.Refused refused) {
      answer.setStatus(refused.status());
      add(answer, refused.headers());
      answer.setContentLength(refused.body().length);
      answer.getOutputStream().write(refused.body());
    } else if (outcome instanceof Outcome.Admitted admitted) {
      add(answer, admitted.headers());
      request.setAttribute(DECISION, admitted.decision());
      List<Header> added = admitted.decision().requestHeaders();
      boolean hasFailed = true;
      try {
        chain.doFilter(added.isEmpty() ? request : new WithHeaders(http, added), response);
        hasFailed = false;
      } finally {
        if (hasFailed) {
          // The container sets the status later.
          admitted.end(answer.isCommitted() ? answer.getStatus() : 500);
        } else {
          endLater(admitted, request, answer);
        }
      }
    } else {
      chain.doFilter(request, response);
    }
  }

  /** Adds the headers of a decision to those of an outer filter. */
  private static void add(HttpServletResponse answer, Map<String, String> headers) {
    headers.forEach(
        (name, value) ->
            answer.setHeader(name, Outcome.beside(answer.getHeader(name), name, value)));
  }

  /** Ends a request that is over, or later with its asynchronous part. */
  private static void endLater(
      Outcome.Admitted admitted, ServletRequest request, HttpServletResponse answer) {
    if (request.isAsyncStarted()) {
      try {
        request.getAsyncContext().addListener(new AtEnd(admitted, answer));
        return;
      } catch (IllegalStateException isOver) {
        // It has been completed or dispatched by now.
      }
    }
    admitted.end(answer.getStatus());
  }

  /** Ends an asynchronous request, which timeouts and errors end too. */
  private record AtEnd(Outcome.Admitted admitted, HttpServletResponse answer)
      implements AsyncListener {
    @Override
    public void onComplete(AsyncEvent event) {
      admitted.end(answer.getStatus());
    }

    @Override
    public void onTimeout(AsyncEvent event) {}

    @Override
    public void onError(AsyncEvent event) {}

    @Override
    public void onStartAsync(AsyncEvent event) {
      // Started again, without its listeners.
      event.getAsyncContext().addListener(this);
    }
  }

  private record ServletRequestInfo(HttpServletRequest nativeRequest) implements RequestInfo {
    @Override
    public @Nullable String peer() {
      return nativeRequest.getRemoteAddr();
    }

    @Override
    public String method() {
      return nativeRequest.getMethod();
    }

    @Override
    public String path() {
      return nativeRequest.getRequestURI();
    }

    @Override
    public List<String> header(String name) {
      return Collections.list(nativeRequest.getHeaders(name));
    }
  }

  /** A request whose headers of the rules replace its own of the same names. */
  private static final class WithHeaders extends HttpServletRequestWrapper {
    private final List<Header> added;

    WithHeaders(HttpServletRequest request, List<Header> added) {
      super(request);
      this.added = added;
    }

    @Override
    public @Nullable String getHeader(String name) {
      Enumeration<String> values = getHeaders(name);
      return values.hasMoreElements() ? values.nextElement() : null;
    }

    @Override
    public Enumeration<String> getHeaders(String name) {
      List<String> values =
          added.stream()
              .filter(header -> header.name().equalsIgnoreCase(name))
              .map(Header::value)
              .toList();
      return values.isEmpty() ? super.getHeaders(name) : Collections.enumeration(values);
    }

    @Override
    public Enumeration<String> getHeaderNames() {
      Set<String> names = new LinkedHashSet<>(Collections.list(super.getHeaderNames()));
      for (Header header : added) {
        if (names.stream().noneMatch(header.name()::equalsIgnoreCase)) {
          names.add(header.name());
        }
      }
      return Collections.enumeration(names);
    }
  }
}
